"""Each kind of damage is found and named; a healthy store has none."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from promptkeel.errors import NotAStoreError, StoreUnavailableError
from promptkeel.model import MemoryEdge
from promptkeel.steps import drive_blocking
from promptkeel.store.audit import NAMED, Audit, Finding
from promptkeel.store.facade import BlockingStore
from promptkeel.store.opening import open_engine
from promptkeel.store.operations import Correct, Remember
from promptkeel.upkeep.checking import check, check_steps
from promptkeel.upkeep.compaction import Retention, compact
from store.examples import ACME, ADA, BOB, SteppingClock, node
from store.stock_client import StockClient


def fill(store: BlockingStore, clock: SteppingClock) -> None:
    """A little of everything that a store can hold."""
    for number in range(4):
        store.put(node(f"n{number}", f"SOUL:says {number}", properties={"role": "CTO"}))
        clock.tick()
    store.put(node("top", "RULE:be brief", scope=ACME))
    store.put(node("b1", "SOUL:says 0", scope=BOB))
    store.apply((Correct(scope=ADA, node_id="n0", label="SOUL:says more", source="ada"),))
    store.apply((Remember(node("again", "SOUL:says 1", source="bob")),))
    store.retract(ADA, "n2")
    store.link(MemoryEdge(scope=ADA, start="n1", type="derived_from", end="n0"))
    store.link(MemoryEdge(scope=ADA, start="n1", type="about", end="top"))
    store.erase(ADA, "n3")


@pytest.fixture
def clock() -> SteppingClock:
    return SteppingClock()


@pytest.fixture
def path(tmp_path: Path, clock: SteppingClock) -> Path:
    path = tmp_path / "memory.db"
    with BlockingStore(open_engine(f"sqlite:///{path}", clock=clock)) as store:
        fill(store, clock)
    return path


@pytest.fixture(scope="module")
def client() -> Iterator[StockClient]:
    with StockClient() as client:
        yield client


@pytest.fixture
def raw(path: Path, client: StockClient) -> Iterator[StockClient]:
    yield client.connect(path)
    client.close()


@pytest.fixture
def unseen(raw: StockClient) -> Callable[[str], None]:
    """Run a statement that no trigger sees."""

    def run(statement: str) -> None:
        kept = raw.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'")
        for name, _ in kept:
            raw.execute(f"DROP TRIGGER {name}")
        raw.execute(statement)
        for _, text in kept:
            raw.execute(text)

    return run


def audit(path: Path) -> Audit:
    return check(f"sqlite:///{path}")


def kinds(path: Path) -> list[str]:
    return [finding.kind for finding in audit(path).findings]


def only(path: Path) -> Finding:
    (finding,) = audit(path).findings
    assert finding.what
    assert finding.remedy
    return finding


@pytest.mark.parametrize("backend", ["ram", "sqlite"])
def test_a_store_that_only_the_library_wrote_to_is_healthy(backend: str, tmp_path: Path, clock: SteppingClock) -> None:
    url = "ram:" if backend == "ram" else f"sqlite:///{tmp_path / 'healthy.db'}"
    with BlockingStore(open_engine(url, clock=clock)) as store:
        assert drive_blocking(check_steps(store.core)).is_healthy
        fill(store, clock)
        found = drive_blocking(check_steps(store.core))
        assert found.findings == ()
        assert found.is_healthy
        assert (found.counts["nodes"], found.counts["edges"], found.counts["erasures"]) == (5, 2, 1)
        for _ in compact(store.core.engine, Retention(changes=3), step=2, clock=clock):
            assert drive_blocking(check_steps(store.core)).findings == ()


def test_a_stock_clients_ordinary_edits_are_no_damage(path: Path, raw: StockClient) -> None:
    raw.execute("UPDATE nodes SET label = 'SOUL:other' WHERE id = 'n0'")
    raw.execute("UPDATE nodes SET scope = 'org:acme/user:bob' WHERE id = 'n0'")
    raw.execute("INSERT OR REPLACE INTO nodes(scope, label, id) VALUES ('org:acme', 'SOUL:replaces', 'b1')")
    raw.execute("INSERT OR IGNORE INTO nodes(scope, label, id) VALUES ('org:acme/user:ada', 'SOUL:ignored', 'b1')")
    raw.execute(
        "INSERT INTO nodes(scope, label, id) VALUES ('org:acme', 'X', 'b1') ON CONFLICT DO UPDATE SET label = 'Y'"
    )
    raw.execute("UPDATE OR REPLACE nodes SET id = 'n1' WHERE id = 'n0'")
    raw.execute("DELETE FROM nodes WHERE id = 'top'")
    raw.execute("CREATE TABLE somebody_elses(x)")
    assert set(kinds(path)) <= {"edge_orphan"}


@pytest.mark.parametrize(
    ("statement", "kind", "where"),
    [
        ("UPDATE heads SET seq = 1 WHERE scope = 'org:acme/user:ada'", "head_wrong", "head of org:acme/user:ada"),
        ("UPDATE heads SET nonce = nonce + 1 WHERE scope = 'org:acme'", "head_wrong", "head of org:acme"),
        ("INSERT INTO heads VALUES ('org:x', 99, 1)", "head_wrong", "head of org:x"),
        ("DELETE FROM heads WHERE scope = 'org:acme'", "head_missing", "head of org:acme"),
        ("DELETE FROM changes WHERE seq = 5", "log_gap", "changes"),
        ("UPDATE meta SET value = 999 WHERE key = 'delta_floor'", "floor_wrong", "meta.delta_floor"),
        ("DELETE FROM meta WHERE key = 'delta_floor'", "floor_wrong", "meta.delta_floor"),
        ("UPDATE meta SET value = 'else' WHERE key = 'format'", "meta_wrong", "meta.format"),
        ("UPDATE meta SET value = x'00' WHERE key = 'secret'", "meta_wrong", "meta.secret"),
        ("DELETE FROM versions WHERE id = 'n0'", "version_missing", "node 'n0' at org:acme/user:ada"),
        ("UPDATE versions SET seq = 1 WHERE id = 'n2'", "version_orphan", "node 'n2' at org:acme/user:ada"),
        ("UPDATE edges SET end = 'nobody' WHERE type = 'about'", "edge_orphan", "edge about from 'n1' to 'nobody'"),
        ("UPDATE testimonies SET id = 'nobody'", "testimony_orphan", "node 'nobody' at org:acme"),
        ("UPDATE testimonies SET properties = '{'", "value_unreadable", "node 'n1' at org:acme"),
        ("UPDATE edges SET properties = '[' WHERE type = 'about'", "value_unreadable", "edge about from 'n1' to 'top'"),
        ("UPDATE nodes SET label = CAST(x'534f554c3aff' AS TEXT) WHERE id = 'n1'", "value_unreadable", "node 'n1'"),
        ("UPDATE nodes SET label = '  ' WHERE id = 'n1'", "value_unreadable", "node 'n1'"),
        ("UPDATE nodes SET source = '' WHERE id = 'b1'", "value_unreadable", "node 'b1'"),
        ("INSERT INTO nodes(scope, label, id) VALUES ('no path', 'SOUL:x', 'x')", "value_unreadable", "node 'x'"),
        ("UPDATE versions SET trust = 'nobody' WHERE id = 'n0'", "value_unreadable", "node 'n0'"),
        ("DROP TRIGGER nodes_update", "schema_missing", "trigger nodes_update"),
        ("DROP INDEX edges_by_end", "schema_missing", "index edges_by_end"),
        (
            "CREATE TRIGGER theirs AFTER INSERT ON nodes BEGIN DELETE FROM nodes WHERE id = NEW.id; END",
            "schema_foreign",
            "trigger theirs",
        ),
        ("ALTER TABLE marks ADD COLUMN more TEXT", "schema_changed", "table marks"),
        ("DROP TABLE marks", "schema_missing", "table marks"),
        ("PRAGMA user_version = 99", "schema_newer", "schema 99"),
    ],
)
def test_each_damage_is_found_and_named(path: Path, raw: StockClient, statement: str, kind: str, where: str) -> None:
    assert audit(path).is_healthy
    raw.execute(statement)
    found = [finding for finding in audit(path).findings if finding.kind == kind]
    assert [finding for finding in found if finding.where.startswith(where)], audit(path).findings
    assert all(finding.what and finding.remedy for finding in found)


def test_damage_is_not_reported_as_more_than_it_is(path: Path, raw: StockClient) -> None:
    raw.execute("DELETE FROM heads WHERE scope = 'org:acme'")
    assert only(path).kind == "head_missing"


@pytest.mark.parametrize(
    ("statement", "kind", "where"),
    [
        ("UPDATE nodes SET label = 'SOUL:forged' WHERE id = 'n1'", "row_unlogged", "node 'n1'"),
        ("UPDATE nodes SET state = 'live' WHERE id = 'n2'", "row_unlogged", "node 'n2'"),
        ("INSERT INTO nodes(scope, label, id) VALUES ('org:acme', 'SOUL:unseen', 'u')", "row_unlogged", "node 'u'"),
        ("DELETE FROM nodes WHERE id = 'b1'", "row_lost", "node 'b1'"),
        (
            "INSERT INTO nodes(scope, label, id) VALUES ('org:acme/user:ada', 'SOUL:back', 'n3')",
            "erased_returned",
            "node 'n3'",
        ),
    ],
)
def test_what_was_written_past_the_triggers_is_found(
    path: Path, unseen: Callable[[str], None], statement: str, kind: str, where: str
) -> None:
    unseen(statement)
    finding = only(path)
    assert (finding.kind, finding.where.startswith(where)) == (kind, True)


def test_a_missing_triggers_remedy_is_its_own_statement(path: Path, raw: StockClient) -> None:
    raw.execute("DROP TRIGGER nodes_delete")
    remedy = only(path).remedy
    assert remedy.startswith("run: CREATE TRIGGER nodes_delete ")
    raw.execute(remedy.removeprefix("run: ").partition("; then")[0])
    assert kinds(path) == []


def test_a_page_that_was_overwritten_is_found(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(4096 * 3)
        file.write(b"\xff" * 4096)
    assert "corrupt" in kinds(path)


def test_of_many_findings_of_a_kind_some_are_named_and_the_rest_counted(
    path: Path, unseen: Callable[[str], None]
) -> None:
    unseen(
        "INSERT INTO nodes(scope, label, id) WITH RECURSIVE n(i) AS "
        "(SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 150) SELECT 'org:acme', 'SOUL:u' || i, 'u' || i FROM n"
    )
    found = audit(path)
    assert len(found.findings) == NAMED
    assert found.unnamed == {"row_unlogged": 50}


def test_checking_changes_nothing_and_makes_nothing(path: Path, tmp_path: Path) -> None:
    before = path.read_bytes()
    audit(path)
    assert path.read_bytes() == before
    with pytest.raises(StoreUnavailableError):
        check(f"sqlite:///{tmp_path / 'none.db'}")
    assert not (tmp_path / "none.db").exists()


def test_a_file_that_is_no_store_is_refused(tmp_path: Path, client: StockClient) -> None:
    other = tmp_path / "other.db"
    client.run(other, "CREATE TABLE t(x)")
    with pytest.raises(NotAStoreError):
        check(f"sqlite:///{other}")
    text = tmp_path / "text.db"
    text.write_bytes(os.urandom(8192))
    with pytest.raises(NotAStoreError):
        check(f"sqlite:///{text}")
