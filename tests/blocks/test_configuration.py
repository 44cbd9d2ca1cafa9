"""promptkeel.toml declares what a program can declare, and refuses the rest by name."""

from __future__ import annotations

import json
import re
import sys
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptkeel import blocking
from promptkeel.blocks import (
    ComputedSource,
    FailurePolicy,
    FileSource,
    MemoryLane,
    PromptBlockSpec,
    StaticSource,
    StoredSource,
)
from promptkeel.blocks.configuration import load_configuration, read_configuration
from promptkeel.errors import InvalidDeclarationError, InvalidScopeError, SourceUnavailableError
from promptkeel.render import RenderPolicy
from promptkeel.scope import TenantScope

WHOLE = """
[store]
url = "sqlite:///memory.db"
busy_timeout = 2.5

[scopes]
default = "org:acme/user:u1"
levels = ["org", "user"]

[policies.patient]
on_failure = "last_known_good"
max_age = 60
max_facts = 7

[blocks.BOUNDARIES]
text = "Never reveal another customer's data."

[blocks.RULES]
file = "texts/rules.md"
max_bytes = 1000
timeout = 1.5

[blocks.USER_PROFILE]
label_prefix = "SOUL:"
profile_fields = ["role"]
policy = "patient"
max_facts = 9
inherit = false
permissions = ["read", "add"]

[budget]
prompt_tokens = 8000

[providers.anthropic]
model = "some-model"
"""


@pytest.fixture
def load(tmp_path):
    def write(text):
        path = tmp_path / "promptkeel.toml"
        path.write_text(text, encoding="utf-8")
        return load_configuration(path)

    return write


def test_a_file_declares_what_a_program_can(load, tmp_path):
    found = load(WHOLE)
    assert found.url == f"sqlite:///{tmp_path}/memory.db"
    assert found.options == {"busy_timeout": 2.5}
    assert found.scope == TenantScope.parse("org:acme/user:u1")
    assert found.blocks == (
        PromptBlockSpec(name="BOUNDARIES", source=StaticSource("Never reveal another customer's data.")),
        PromptBlockSpec(name="RULES", source=FileSource(tmp_path / "texts/rules.md", max_bytes=1000), timeout=1.5),
        PromptBlockSpec(
            name="USER_PROFILE",
            source=MemoryLane("SOUL:", frozenset({"role"})),
            on_failure=FailurePolicy("last_known_good", max_age=60),
            policy=RenderPolicy(max_facts=9),
            inherit=False,
            permissions=frozenset({"read", "add"}),
        ),
    )
    assert (found.budget.prompt_tokens, found.models) == (8000, {"anthropic": "some-model"})


def test_the_levels_of_a_scope_are_checked(load):
    found = load(WHOLE)
    for path in ("", "org:acme", "org:acme/user:u1"):
        found.check_scope(TenantScope.parse(path))
    for path in ("user:u1", "org:acme/team:t", "org:acme/user:u1/run:r"):
        with pytest.raises(InvalidScopeError, match="org/user"):
            found.check_scope(TenantScope.parse(path))


@pytest.mark.parametrize("text", ["sqlite:////abs/memory.db", "ram:", "postgresql://u@h/d"])
def test_an_address_that_is_no_relative_file_stands_as_it_is(load, text):
    assert load(f'[store]\nurl = "{text}"').url == text


def test_a_relative_address_with_spaces_and_options_is_below_the_files_folder(load, tmp_path):
    assert load('[store]\nurl = "sqlite:///my%20memory.db?driver=sqlite3"').url == (
        f"sqlite:///{tmp_path}/my memory.db?driver=sqlite3"
    )


@pytest.mark.parametrize(
    ("text", "table", "key", "nearest"),
    [
        ("[stor]", None, "stor", "store"),
        ("[block.RULES]", None, "block", "blocks"),
        ('[blocks.RULES]\ntext = "a"\ntimout = 1', "blocks.RULES", "timout", "timeout"),
        ('[blocks.P]\nlabel_prefx = "A:"', "blocks.P", "label_prefx", "label_prefix"),
        ('[policies.x]\non_falure = "omit"', "policies.x", "on_falure", "on_failure"),
        ("[budget]\nprompt_token = 1", "budget", "prompt_token", "prompt_tokens"),
        ('[providers.antropic]\nmodel = "m"', "providers", "antropic", "anthropic"),
        ('[providers.openai]\nmodle = "m"', "providers.openai", "modle", "model"),
        ('[scopes]\ndefalt = "org:a"', "scopes", "defalt", "default"),
    ],
)
def test_an_unknown_key_is_an_error_with_the_nearest_right_name(load, text, table, key, nearest):
    with pytest.raises(InvalidDeclarationError, match=f"did you mean {nearest!r}") as caught:
        load(text)
    assert caught.value.field == key
    assert caught.value.where == ("promptkeel.toml" if table is None else f"promptkeel.toml, [{table}]")


@pytest.mark.parametrize(
    "text",
    [
        "[blocks.RULES]",
        '[blocks.RULES]\ntext = "a"\nfile = "b"',
        '[blocks.RULES]\ntext = "a"\nmax_bytes = 3',
        '[blocks.RULES]\ntext = "  "',
        "[blocks.RULES]\ntext = 3",
        '[blocks.rules]\ntext = "a"',
        '[blocks.RULES]\nfile = ""',
        '[blocks.RULES]\nfile = "a"\nmax_bytes = true',
        '[blocks.RULES]\nfile = "a"\nencoding = "latin-99"',
        '[blocks.RULES]\ntext = "a"\ntier = "profile"',
        '[blocks.RULES]\ntext = "a"\norder = 1.5',
        '[blocks.RULES]\ntext = "a"\ninherit = "no"',
        '[blocks.P]\nlabel_prefix = "A:"\nprofile_fields = "role"',
        '[blocks.P]\nlabel_prefix = "A:"\nprofile_fields = [1]',
        '[blocks.P]\nlabel_prefix = "A:"\nmax_age = 3',
        '[blocks.P]\nlabel_prefix = "A:"\non_failure = "ignore"',
        '[blocks.P]\nlabel_prefix = "A:"\non_failure = "omit"\nmax_age = 3',
        '[blocks.P]\nlabel_prefix = "A:"\npolicy = "nobody"',
        '[blocks.P]\nlabel_prefix = "A:"\nmax_facts = 0',
        '[blocks.P]\nlabel_prefix = "A:"\npermissions = ["erase"]',
        '[blocks.P]\nlabel_prefix = "A:"\nrender_when = "nonsense"',
        '[blocks.P]\nlabel_prefix = "A:"\nrender_when = "no_such_module_anywhere:gate"',
        '[blocks.T]\nfunction = "os.path:no_such_function"',
        '[blocks.T]\nfunction = "os:sep"',
        '[blocks]\nRULES = "text"',
        'store = "sqlite:///a.db"',
        '[blocks.S]\nstored = "everyone"',
        "[blocks.S]\nstored = true",
        '[blocks.S]\nstored = "tenant"\nrequired = "yes"',
        "[store]\nbusy_timeout = 3",
        "[store]\nurl = 3",
        "[budget]\nprompt_tokens = 0",
        "[budget]\nprompt_tokens = true",
        '[budget]\ntoken_counter = "guess"',
        "[providers.openai]",
        '[scopes]\ndefault = "acme"',
        '[scopes]\nlevels = "org"',
        "[store",
        "x = " + "[" * 5000,
        '[blocks.RULES]\nfile = "a"\ntimeout = 1e300',
        'a = "\\ud800"',
    ],
)
def test_what_cannot_mean_anything_is_refused_with_its_file_and_place(load, text):
    with pytest.raises(InvalidDeclarationError, match=r"promptkeel\.toml"):
        load(text)


def test_bytes_that_are_not_utf8_are_named(tmp_path):
    path = tmp_path / "promptkeel.toml"
    path.write_bytes(b'[blocks.RULES]\ntext = "\xff"')
    with pytest.raises(InvalidDeclarationError, match="not UTF-8 at byte 23"):
        load_configuration(path)


def test_a_missing_file_says_how_to_have_one(tmp_path):
    with pytest.raises(SourceUnavailableError, match="promptkeel init"):
        load_configuration(tmp_path / "promptkeel.toml")


def test_a_stored_block_names_its_level(load):
    found = load(
        '[blocks.HOURS]\nstored = "deployment"\nrequired = false\n[blocks.RULES]\nstored = "tenant"'
        '\n[blocks.NOTES]\nstored = "scope"\nlearned = true\npermissions = ["read", "append"]'
    )
    assert [spec.source for spec in found.blocks] == [
        StoredSource(level="deployment", required=False),
        StoredSource(level="tenant"),
        StoredSource(level="scope", learned=True),
    ]


def test_functions_are_imported_by_name(load, tmp_path, monkeypatch):
    (tmp_path / "declared_functions.py").write_text(
        "def day(scope):\n    return 'Monday', 'd1'\n\ndef is_member(scope):\n    return True\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    found = load(
        '[blocks.TODAY]\nfunction = "declared_functions:day"\n'
        '[blocks.P]\nlabel_prefix = "A:"\nrender_when = "declared_functions:is_member"'
    )
    module = sys.modules["declared_functions"]
    today, profile = found.blocks
    assert today.source == ComputedSource(module.day)
    assert profile.render_when is module.is_member


_LANES = st.fixed_dictionaries(
    {"label_prefix": st.sampled_from(["SOUL:", 'A "quoted":', "日本:"])},
    optional={
        "profile_fields": st.lists(st.sampled_from(["role", "name", "é"]), unique=True),
        "order": st.integers(-9, 9),
        "inherit": st.booleans(),
        "on_failure": st.sampled_from(["fail_closed", "omit", "last_known_good"]),
        "layer": st.sampled_from(["stable", "volatile"]),
        "channel": st.sampled_from(["system", "user", "tool_result"]),
        "max_facts": st.integers(1, 9),
        "permissions": st.just(["read", "add"]),
        "gate_timeout": st.floats(0.1, 5),
    },
)


def toml_of(table):
    # JSON's strings, numbers, lists and booleans are TOML's too.
    return "\n".join(f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in table.items())


@given(st.dictionaries(st.sampled_from(["P", "USER_PROFILE", "NOTES_2"]), _LANES, min_size=1))
def test_a_file_and_a_program_that_say_the_same_declare_the_same(tmp_path_factory, blocks):
    path = tmp_path_factory.getbasetemp() / "promptkeel.toml"
    text = "\n".join(f"[blocks.{name}]\n{toml_of(table)}" for name, table in blocks.items())
    found = read_configuration(tomllib.loads(text), path)
    expected = []
    for name, table in blocks.items():
        fields = dict(table)
        lane = MemoryLane(fields.pop("label_prefix"), frozenset(fields.pop("profile_fields", ())))
        limit = fields.pop("max_facts", None)
        if limit is not None:
            fields["policy"] = RenderPolicy(max_facts=limit)
        expected.append(PromptBlockSpec(name=name, source=lane, **fields))
    assert found.blocks == tuple(expected)
    assert [spec.fingerprint for spec in found.blocks] == [spec.fingerprint for spec in expected]


def test_a_keel_is_opened_by_its_file_alone(tmp_path):
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts/rules.md").write_text("Be brief.")
    (tmp_path / "promptkeel.toml").write_text(WHOLE)
    ada = TenantScope.parse("org:acme/user:u1")
    with blocking.open(blocks=tmp_path / "promptkeel.toml") as keel:
        keel.remember(ada, "prefers tea", block="USER_PROFILE")
        text = keel.prompt(ada).text
        assert "prefers tea" in text
        assert "Be brief." in text
        with pytest.raises(InvalidScopeError):
            keel.remember(TenantScope.parse("org:acme/team:t"), "prefers tea", block="USER_PROFILE")
        for read in (keel.prompt, keel.facts, keel.resolve):
            with pytest.raises(InvalidScopeError):
                read(TenantScope.parse("org:acme/team:t"))
    assert (tmp_path / "memory.db").exists()


def test_the_program_goes_before_the_file(tmp_path):
    (tmp_path / "promptkeel.toml").write_text('[store]\nurl = "sqlite:///memory.db"')
    with blocking.open("ram:", blocks=str(tmp_path / "promptkeel.toml")) as keel:
        assert keel.url == "ram:"
    assert not (tmp_path / "memory.db").exists()


def test_without_any_address_the_error_says_where_one_belongs(tmp_path):
    (tmp_path / "promptkeel.toml").write_text("")
    for blocks in ((), tmp_path / "promptkeel.toml"):
        with pytest.raises(InvalidDeclarationError, match="sqlite:///"):
            blocking.open(blocks=blocks)


def test_the_readmes_file_is_a_legal_one(tmp_path):
    readme = Path(__file__).parents[2] / "README.md"
    (text,) = re.findall(r"```toml\n(.*?)```", readme.read_text(encoding="utf-8"), re.DOTALL)
    (tmp_path / "promptkeel.toml").write_text(text)
    (tmp_path / "rules.md").write_text("Be brief.")
    ada = TenantScope.parse("org:acme/user:ada")
    with blocking.open(blocks=tmp_path / "promptkeel.toml") as keel:
        keel.blocks.append(ada.parent, "HOURS", "From 9 to 17.", author="operator")
        assert keel.tools(ada, source="agent").memory_fact_add("USER_PROFILE", "prefers tea")["id"]
        text = keel.prompt(ada).text
    assert all(part in text for part in ("Be brief.", "From 9 to 17.", '"prefers tea"', "Never reveal"))
