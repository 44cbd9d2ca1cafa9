"""Salts follow from the store's secret and from whom a prompt belongs to, and from nothing that a caller passes."""

from __future__ import annotations

import hashlib
import hmac
import pickle
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

import promptkeel as pk
from conversing import ADA, BEN, FORMATS, SECRET, builder_of, prompt_of, specs
from promptkeel import blocking
from promptkeel.blocks.source import SHARINGS
from promptkeel.errors import InvalidInputError
from promptkeel.prompt.salts import SALT_SCOPES, keys_of, salt_scope
from promptkeel.store.base import fence_id

paths = st.lists(st.tuples(st.sampled_from(["org", "user"]), st.text(max_size=5, min_size=1)), max_size=3)


def scopes():
    def scope(levels):
        try:
            found = pk.TenantScope()
            for kind, identity in levels:
                found = found.child(kind, identity)
        except InvalidInputError:
            return None
        return found

    return paths.map(scope).filter(lambda found: found is not None)


def keyed_by(secret):
    return lambda message: hmac.digest(secret, message, "sha256") if secret else None


@given(scopes(), scopes(), st.binary(min_size=1, max_size=40), st.binary(min_size=1, max_size=40))
def test_a_salt_tells_apart_exactly_whom_it_is_to_tell_apart(one, two, secret, other):
    first, second = keys_of(keyed_by(secret), one), keys_of(keyed_by(secret), two)
    assert first.deployment == second.deployment
    assert (first.tenant == second.tenant) == (one.root == two.root)
    assert (first.scope == second.scope) == (one.path == two.path)
    assert len({first.deployment, first.tenant, first.scope}) == 3
    assert all(re.fullmatch("[0-9a-f]{32}", first.salt(each)) for each in SALT_SCOPES)
    if secret != other:
        foreign = keys_of(keyed_by(other), one)
        assert {foreign.deployment, foreign.tenant, foreign.scope}.isdisjoint(
            {first.deployment, first.tenant, first.scope}
        )


def test_the_fence_is_the_one_that_blocks_have():
    assert keys_of(keyed_by(SECRET), ADA).fence == fence_id(SECRET, ADA.root)
    prompt = prompt_of()
    assert f"<untrusted-data-{prompt.keys.fence} " in prompt.text


def test_no_secret_no_salt():
    assert keys_of(keyed_by(b""), ADA) is None


@given(st.lists(st.sampled_from(SHARINGS)))
def test_the_deployment_shares_where_every_block_is_everybodys_else_the_tenant(shared):
    expected = "tenant" if set(shared) - {"deployment"} else "deployment"
    assert salt_scope(shared) == expected
    for declared in SALT_SCOPES:
        assert salt_scope(shared, declared) == declared


@pytest.mark.parametrize("wrong", ["everybody", "", 7, True])
def test_a_salt_for_nobody_is_refused(wrong):
    with pytest.raises(InvalidInputError, match="salt"):
        salt_scope(["deployment"], wrong)


def test_two_tenants_never_share_an_entry_unless_all_that_they_are_told_is_everybodys():
    with blocking.open("ram:", blocks=specs()) as keel:
        for scope in (ADA, BEN):
            keel.remember(scope, "prefers tea", block="USER_PROFILE")
        requests = [
            FORMATS["openai-chat"].request(builder_of(keel.store).build(scope), [], server="vllm")
            for scope in (ADA, BEN)
        ]
        salts = [request["extra_body"]["cache_salt"] for request in requests]
        assert len(set(salts)) == 2
        authored = [
            FORMATS["openai-chat"].request(builder_of(keel.store, specs()[:2]).build(scope), [], server="vllm")
            for scope in (ADA, BEN)
        ]
        assert len({request["extra_body"]["cache_salt"] for request in authored}) == 1


def test_a_tenant_has_its_own_salt_before_anything_is_known_of_it_and_keeps_it():
    form = FORMATS["openai-chat"]
    before = form.request(prompt_of([]), form.conversation(1), server="vllm")
    after = form.request(prompt_of(), form.conversation(1), server="vllm")
    assert before["extra_body"] == after["extra_body"] == {"cache_salt": prompt_of().keys.tenant}


def test_a_prompt_does_not_carry_the_secret():
    prompt = prompt_of()
    for text in (pickle.dumps(prompt.keys), repr(prompt.keys).encode(), repr(prompt).encode()):
        assert SECRET not in text
        assert SECRET.hex().encode() not in text
    assert prompt.keys.tenant != hashlib.sha256(ADA.root.encode()).hexdigest()[:32]


def test_the_same_store_gives_the_same_salts_to_every_process_that_opens_it(tmp_path):
    url = f"sqlite:///{tmp_path / 'memory.db'}"
    found = []
    for _ in range(2):
        with blocking.open(url, blocks=specs()) as keel:
            found.append(keel.prompt(ADA).keys)
    assert found[0] == found[1]
    with blocking.open("ram:", blocks=specs()) as keel:
        assert keel.prompt(ADA).keys.tenant != found[0].tenant


def test_a_delegated_run_and_a_prompt_with_a_budget_have_the_same_keys():
    with blocking.open("ram:", blocks=specs(), prompt_tokens=1_000_000) as keel, keel.delegate(ADA) as run:
        assert run.prompt().keys == keel.prompt(ADA).keys is not None
