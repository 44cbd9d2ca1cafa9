"""The suite for anything with ``query_nodes``: is a lane complete, isolated, stable and whole?"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, ClassVar

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptkeel.lane import scan_memory_lane
from promptkeel.model import MemoryNode
from promptkeel.scope import DEPLOYMENT, TenantScope
from promptkeel.store.arguments import check_limit
from promptkeel.testing import samples, strategies
from promptkeel.testing.calling import Called
from promptkeel.testing.harness import Suite, patient
from promptkeel.testing.model import order
from promptkeel.testing.samples import ACME, ADA, BOB, CHAIN, OTHER, STRANGERS, labelled, node

SCOPES = (DEPLOYMENT, ACME, ADA, BOB, OTHER)


@attrs.frozen
class PlainScanner:
    """A list of nodes with a ``query_nodes``: what every scanner must agree with."""

    nodes: Sequence[MemoryNode]

    async def query_nodes(
        self, scope: TenantScope, *, label_prefix: str | None = None, limit: int | None = None
    ) -> list[MemoryNode]:
        """Every live node visible at the scope whose label starts with the prefix."""
        return lane(self.nodes, scope, label_prefix or "")[: check_limit(limit)]


def lane(nodes: Sequence[MemoryNode], scope: TenantScope, prefix: str) -> list[MemoryNode]:
    """The nodes of a lane, by looking at each."""
    return sorted(
        (each for each in nodes if scope.sees(each.scope) and each.state == "live" and each.label.startswith(prefix)),
        key=order,
    )


def content(nodes: Sequence[Any]) -> list[tuple[Any, ...]]:
    """What a lane may read of nodes, whatever their class and order."""
    return sorted(
        (
            (each.label, str(each.id), json.dumps(each.properties, sort_keys=True), each.created_at, each.updated_at)
            for each in nodes
        ),
        key=repr,
    )


def many_nodes() -> st.SearchStrategy[list[MemoryNode]]:
    """Stamped nodes at related scopes, whose labels share prefixes and whose ids are unique under each root."""
    drawn = strategies.nodes(
        ids=st.one_of(st.sampled_from("abcdefgh"), strategies.statements()),
        scopes=st.one_of(st.sampled_from(CHAIN), st.sampled_from([*SCOPES, *STRANGERS])),
        states=st.one_of(st.just("live"), strategies.states()),
        stamped=True,
    )
    return st.lists(drawn, max_size=12, unique_by=lambda each: (each.scope.root, each.id))


class LaneSuite(Suite):
    """The promises of a scanner; give ``new_scanner``.

    Attributes:
        many: how many nodes a lane is filled with, to see that it is not cut.
    """

    __test__ = False
    many: ClassVar[int] = 250

    def new_scanner(self, nodes: Sequence[MemoryNode]) -> Any:
        """A scanner that holds exactly these nodes, all of them stamped, or an awaitable of one."""
        raise NotImplementedError(f"{type(self).__name__} needs a method new_scanner(self, nodes)")

    def scanner(self, nodes: Sequence[MemoryNode]) -> Called:
        """The author's scanner, called the blocking way."""
        return self._called(self.new_scanner, nodes)

    def revision(
        self, scanner: Any, scope: TenantScope, prefix: str, profile_fields: frozenset[str] = frozenset()
    ) -> str:
        """The revision of a lane, read through ``scan_memory_lane``."""
        found = self._caller.call(scan_memory_lane, scanner, scope, prefix, profile_fields)
        assert isinstance(found.revision, str)
        return found.revision

    # Complete

    def test_complete_a_lane_holds_every_visible_live_node_of_its_prefix(self) -> None:
        """Any set of nodes: a lane is what looking at each of them gives."""

        @patient()
        @given(nodes=many_nodes(), scope=st.sampled_from(SCOPES), label=st.sampled_from(strategies.PREFIXES))
        def check(nodes: list[MemoryNode], scope: TenantScope, label: str) -> None:
            with self.scratch():
                scanner = self.scanner(nodes)
                for prefix in (None, "", label, label[:2], *(each.label for each in nodes[:3])):
                    found = scanner.query_nodes(scope, label_prefix=prefix)
                    assert content(found) == content(lane(nodes, scope, prefix or ""))

        check()

    def _check_prefixes(self, labels: Sequence[str], prefixes: Sequence[str]) -> None:
        scanner = self.scanner(labelled(labels))
        for prefix in prefixes:
            found = [each.label for each in scanner.query_nodes(ADA, label_prefix=prefix)]
            assert sorted(found) == sorted(label for label in labels if label.startswith(prefix)), prefix

    def test_complete_wildcards_in_a_prefix_are_ordinary_characters(self) -> None:
        """A prefix is no pattern: not LIKE, not GLOB, not a regular expression."""
        self._check_prefixes(samples.PATTERN_LABELS, samples.PATTERN_PREFIXES)

    def test_complete_a_prefix_keeps_to_its_case(self) -> None:
        """``SOUL:`` is not ``soul:``."""
        self._check_prefixes(samples.CASE_LABELS, [*samples.CASE_LABELS, "SOUL:", "soul:", "Soul", "S", "s"])

    def test_complete_a_prefix_may_end_in_the_last_code_points(self) -> None:
        """U+10FFFF has no next code point, and the one after U+D7FF is U+E000."""
        self._check_prefixes(samples.LAST_LABELS, samples.LAST_PREFIXES)

    def test_complete_no_prefix_is_every_label(self) -> None:
        """None and the empty prefix ask for everything."""
        nodes = labelled(samples.PATTERN_LABELS)
        scanner = self.scanner(nodes)
        for asked in ({}, {"label_prefix": None}, {"label_prefix": ""}):
            assert content(scanner.query_nodes(ADA, **asked)) == content(nodes)

    def test_complete_a_long_lane_is_not_cut(self) -> None:
        """``limit=None``, and no limit, are all of them."""
        nodes = labelled(f"SOUL:{number:05}" for number in range(self.many))
        scanner = self.scanner(nodes)
        assert len(scanner.query_nodes(ADA, label_prefix="SOUL:")) == self.many
        assert content(scanner.query_nodes(ADA, label_prefix="SOUL:", limit=None)) == content(nodes)

    def test_complete_a_limit_is_at_most_so_many_and_zero_is_none(self) -> None:
        """0 is no rows, n is the first n, a negative limit an error."""
        scanner = self.scanner(labelled(f"SOUL:{number}" for number in range(5)))
        everything = content(scanner.query_nodes(ADA, limit=None))
        for limit in (0, 1, 4, 5, 99):
            found = content(scanner.query_nodes(ADA, limit=limit))
            assert len(found) == min(limit, 5)
            assert all(each in everything for each in found)
        with pytest.raises(ValueError, match="limit"):
            scanner.query_nodes(ADA, limit=-1)

    def test_complete_equal_statements_are_all_there(self) -> None:
        """Two nodes that say the same are two nodes."""
        nodes = [node(name, created_at=0, updated_at=0, recorded_at=0) for name in "abc"]
        assert content(self.scanner(nodes).query_nodes(ADA, label_prefix="SOUL:")) == content(nodes)

    def test_complete_retracted_and_superseded_nodes_are_in_no_lane(self) -> None:
        """Only what is live is in a lane."""
        stamps: dict[str, Any] = {"created_at": 0, "updated_at": 0, "recorded_at": 0}
        nodes = [
            node("a", **stamps),
            node("b", state="retracted", **stamps),
            node("c", state="superseded", **stamps),
        ]
        scanner = self.scanner(nodes)
        for prefix in (None, "SOUL:"):
            assert content(scanner.query_nodes(ADA, label_prefix=prefix)) == content(nodes[:1])

    # Isolated

    def test_isolated_a_scope_sees_its_ancestors_and_itself_and_nothing_else(self) -> None:
        """Siblings, descendants, other roots and paths that look alike are not visible."""
        stamps: dict[str, Any] = {"created_at": 0, "updated_at": 0, "recorded_at": 0}
        nodes = [
            node(f"n{number}", f"SOUL:of {scope.path}", scope=scope, **stamps)
            for number, scope in enumerate([*CHAIN, *STRANGERS])
        ]
        scanner = self.scanner(nodes)
        for scope in (*CHAIN, *STRANGERS):
            for prefix in (None, "SOUL:"):
                found = [each.label for each in scanner.query_nodes(scope, label_prefix=prefix)]
                assert sorted(found) == sorted(each.label for each in nodes if scope.sees(each.scope))

    # Stable, deterministic, sensitive

    def test_stable_a_read_moves_nothing(self) -> None:
        """Reading again gives the same nodes, times and revision."""
        nodes = labelled(["SOUL:a", "SOUL:b", "RULE:c"])
        scanner = self.scanner(nodes)
        for _ in range(3):
            assert content(scanner.query_nodes(ADA)) == content(nodes)
            self.clock.tick(3600)
            assert self.revision(scanner.wrapped, ADA, "SOUL:") == self.revision(PlainScanner(nodes), ADA, "SOUL:")

    def test_deterministic_equal_nodes_give_one_revision_whatever_their_order(self) -> None:
        """The revision that a plain list of the same nodes has, for every order of insertion."""

        @patient()
        @given(nodes=many_nodes(), data=st.data())
        def check(nodes: list[MemoryNode], data: st.DataObject) -> None:
            shuffled = data.draw(st.permutations(nodes))
            for prefix in ("SOUL:", ""):
                expected = self.revision(PlainScanner(nodes), ADA, prefix)
                with self.scratch():
                    assert self.revision(self.scanner(shuffled).wrapped, ADA, prefix) == expected

        check()

    def test_sensitive_every_part_of_a_node_is_in_the_revision(self) -> None:
        """Another statement, source, time, trust or declared property is another revision."""
        stamps: dict[str, Any] = {"created_at": 0, "updated_at": 0}
        common: dict[str, Any] = {"source": "chat", "recorded_at": 5, "trust": "user", "properties": {"role": "1"}}
        changes: list[dict[str, Any]] = [
            {}, {"source": None}, {"source": "Chat"}, {"recorded_at": None}, {"recorded_at": 6}, {"trust": None},
            {"trust": "inferred"}, {"properties": {}}, {"properties": {"role": "2"}}, {"properties": {"role": True}},
            {"properties": {"n": "1"}}, {"label": "SOUL:prefers Tea"}, {"label": "SOUL:role: 1", "properties": {}},
        ]  # fmt: skip
        fields = frozenset({"role", "n"})
        revisions = [
            self.revision(self.scanner([node(**{**stamps, **common, **change})]).wrapped, ADA, "SOUL:", fields)
            for change in changes
        ]
        assert len(set(revisions)) == len(changes)

    def test_sensitive_text_is_kept_as_given(self) -> None:
        """No character is folded, normalised, cut or dropped, in a label or in a property."""
        statements = samples.HOSTILE_STATEMENTS
        nodes = [
            node(f"n{number}", f"SOUL:{text}", properties={text: text}, created_at=0, updated_at=0, recorded_at=0)
            for number, text in enumerate(statements)
        ]
        found = {each.id: each for each in self.scanner(nodes).query_nodes(ADA, label_prefix="SOUL:")}
        for number, text in enumerate(statements):
            assert found[f"n{number}"].label == f"SOUL:{text}"
            assert found[f"n{number}"].properties[text] == text

    def test_sensitive_values_keep_their_kind(self) -> None:
        """1, 1.0, true and "1" are four values."""
        nodes = [
            node(f"n{number}", properties={"value": value}, created_at=0, updated_at=0)
            for number, value in enumerate(samples.JSON_VALUES)
        ]
        found = {each.id: each for each in self.scanner(nodes).query_nodes(ADA)}
        for number, value in enumerate(samples.JSON_VALUES):
            read = found[f"n{number}"].properties["value"]
            assert (repr(read), type(read)) == (repr(value), type(value))
