"""Scopes: every id has a text form, no id forges a level, and the grammar is strict."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptkeel.errors import InvalidScopeError
from promptkeel.scope import DEPLOYMENT, ScopeLevel, TenantScope
from strategies import kinds, pickled, scope_ids, scopes


@given(scopes)
def test_parse_gives_back_every_scope(scope: TenantScope) -> None:
    assert TenantScope.parse(str(scope)) == scope
    assert str(TenantScope.parse(str(scope))) == str(scope)


@given(scopes, scopes)
def test_different_scopes_have_different_paths(one: TenantScope, other: TenantScope) -> None:
    assert (one == other) == (one.path == other.path)
    assert one != other or hash(one) == hash(other)


@given(scopes, kinds, scope_ids)
def test_an_id_never_forges_a_level(scope: TenantScope, kind: str, id_: str) -> None:
    child = scope.child(kind, id_)
    assert len(TenantScope.parse(child.path).levels) == len(scope.levels) + 1
    assert child.path.count("/") == len(child.levels) - 1
    assert child.path.count(":") == len(child.levels)
    assert child.parent == scope
    assert child.chain == (*scope.chain, child.path)
    assert child.root == (scope.root or child.path)


@given(scopes, scopes)
def test_a_scope_sees_exactly_its_prefixes(one: TenantScope, other: TenantScope) -> None:
    assert one.sees(other) == (other.path in one.chain)
    assert one.sees(one)
    assert one.sees(DEPLOYMENT)
    assert all(one.sees(TenantScope.parse(path)) for path in one.chain)


def test_an_id_that_begins_like_another_is_no_ancestor() -> None:
    ada, adam = TenantScope.parse("org:acme/user:ada"), TenantScope.parse("org:acme/user:adam")
    assert not adam.sees(ada)
    assert not ada.sees(adam)
    assert not TenantScope.parse("org:acme2").sees(TenantScope.parse("org:acme"))


@given(st.text(alphabet="ao:/%2F3Afu \u202e\x00\ud800", max_size=12))
def test_text_is_a_scope_in_canonical_form_or_an_error(text: str) -> None:
    try:
        scope = TenantScope.parse(text)
    except InvalidScopeError:
        return
    # An escape may be spelled in lower case; the path is canonical.
    assert TenantScope.parse(scope.path) == scope
    assert scope.path.lower() == text.lower()


@pytest.mark.parametrize(
    "text",
    [
        "org", "org:", ":acme", "org:acme/", "/org:acme", "org:acme//user:ada", "org:a:b", "Org:acme", "1org:acme",
        "org:acme/user", "org: ", "org:\u00a0", "org:%", "org:%2", "org:%41", "org:%2f%zz", "org:a\nb", "org:a\x00",
        "org:a\u202eb", "org:\ud800", "org:a\u2028", "org:a\x7f", " org:acme", "örg:acme", "org:a\uffff",
    ],
)  # fmt: skip
def test_text_that_is_no_path_is_refused(text: str) -> None:
    with pytest.raises(InvalidScopeError):
        TenantScope.parse(text)


@pytest.mark.parametrize("value", [None, 7, b"org:acme", ["org:acme"]])
def test_only_text_is_parsed(value: Any) -> None:
    with pytest.raises(InvalidScopeError):
        TenantScope.parse(value)


@pytest.mark.parametrize(
    "levels", ["org:acme", [("org",)], [("org", "acme", "x")], [7], [("org", 7)], [(7, "acme")], [("org", "")]]
)
def test_levels_that_are_none_are_refused(levels: Any) -> None:
    with pytest.raises(InvalidScopeError):
        TenantScope(levels)


def test_escapes_are_exactly_three() -> None:
    scope = TenantScope.parse("org:a%2Fb%3ac%25")
    assert scope.levels == (ScopeLevel("org", "a/b:c%"),)
    assert scope.path == "org:a%2Fb%3Ac%25"


def test_the_deployment_is_the_empty_path_and_its_own_parent() -> None:
    assert TenantScope.parse("") == DEPLOYMENT == TenantScope() == DEPLOYMENT.parent
    assert (DEPLOYMENT.path, DEPLOYMENT.root, DEPLOYMENT.chain) == ("", "", ("",))


@given(scopes)
def test_a_scope_is_a_value(scope: TenantScope) -> None:
    copy = pickled(scope)
    assert (copy, copy.path, copy.root, copy.chain) == (scope, scope.path, scope.root, scope.chain)
    assert eval(repr(scope), {"TenantScope": TenantScope}) == scope  # noqa: S307 - a repr made right here
    with pytest.raises(AttributeError):
        scope.path = "org:other"  # type: ignore[misc]
