"""What providers do with prompts: the packaged data is dated and careful, and a caller overrides any of it."""

from __future__ import annotations

import copy
import datetime as dt
import fnmatch
import pickle
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptkeel.blocks import taxonomy
from promptkeel.errors import InvalidDeclarationError, SourceUnavailableError
from promptkeel.providers.rules import (
    PROVIDERS,
    ModelRules,
    base_name,
    known_models,
    load_rules,
    read_rules,
    rules_for,
)
from promptkeel.providers.terms import CHANNELS, TRUSTS

KNOWN = [(provider, model.replace("*", "")) for provider in PROVIDERS for model in known_models(provider)]
CARE = ("anywhere", "after-user", "refused")


# The data.


@pytest.mark.parametrize(("provider", "model"), [*KNOWN, *((provider, "some-model") for provider in PROVIDERS)])
def test_every_entry_is_dated_names_its_documentation_and_is_whole(provider, model):
    rules = rules_for(provider, model)
    assert rules.provider == provider
    assert dt.date(2026, 7, 1) <= rules.as_of <= dt.date(2027, 12, 31)
    assert rules.source.startswith("https://")
    assert rules.ttls
    assert list(rules.ttls) == sorted(set(rules.ttls))
    assert len(rules.write_factors) == len(rules.ttls)
    assert 0 < rules.read_factor < 1 <= min(rules.write_factors)
    assert (rules.scheme == "marks") == (rules.marks > 0)
    assert (rules.input_price is None) == (rules.output_price is None)
    assert set(rules.channels) == set(TRUSTS)
    assert set(rules.channels.values()) <= set(CHANNELS)


@pytest.mark.parametrize(("provider", "model"), KNOWN)
def test_an_unknown_model_gets_the_most_careful_rules_of_its_provider_and_no_prices(provider, model):
    careful, known = rules_for(provider, "some-model"), rules_for(provider, model)
    assert careful.model == "*" != known.model
    assert (careful.input_price, careful.output_price) == (None, None)
    assert careful.minimum >= known.minimum
    assert careful.ttls[0] <= known.ttls[0]
    assert careful.write_factors[0] >= known.write_factors[0]
    assert careful.read_factor >= known.read_factor
    assert CARE.index(careful.system_turns) >= CARE.index(known.system_turns)
    assert careful.system_turns == "refused"
    assert careful.binds_reasoning
    assert not careful.drops_reasoning


@pytest.mark.parametrize(
    ("models", "minimum"),
    [
        ("opus-5 opus-5-5 fable-5 fable-5-1 mythos-5 mythos-5-1", 512),
        ("opus-4-8 sonnet-5 sonnet-4-6 sonnet-4-5 opus-4-1", 1024),
        ("opus-4-7 mythos-preview", 2048),
        ("opus-4-6 opus-4-5 haiku-4-5", 4096),
    ],
)
def test_claude_keeps_no_shorter_prefix_than_documented(models, minimum):
    for model in models.split():
        rules = rules_for("anthropic", f"claude-{model}")
        assert (rules.minimum, rules.marks, rules.lookback) == (minimum, 4, 20), model
        assert (rules.ttls, rules.write_factors) == ((300, 3600), (1.25, 2.0))
        assert rules.unmarkable == {"reasoning"}


def test_bedrock_counts_other_minimums_than_anthropic():
    assert {rules_for("bedrock", f"anthropic.claude-{each}").minimum for each in ("fable-5", "mythos-5")} == {1024}


@pytest.mark.parametrize(
    ("model", "factor"),
    [("claude-opus-5-5", 0.05), ("claude-fable-5-1", 0.025), ("claude-mythos-5-1", 0.025), ("claude-opus-5", 0.1)],
)
def test_reading_costs_the_share_of_the_model(model, factor):
    assert rules_for("anthropic", model).read_factor == factor


def test_reasoning_is_bound_on_the_models_that_check_prefixes_and_on_unknown_ones():
    bound = {model for model in known_models("anthropic") if rules_for("anthropic", model).binds_reasoning}
    assert {each.removeprefix("claude-") for each in bound} == {
        "fable-5-2", "mythos-5-2", "fable-5-1", "mythos-5-1", "opus-5-5", "sonnet-5-5", "haiku-5-5",
    }  # fmt: skip
    assert all(rules_for("anthropic", model).drops_reasoning for model in bound)
    assert rules_for("anthropic", "claude-next").binds_reasoning


def test_system_messages_among_the_messages_need_opus_4_8_or_later():
    assert rules_for("anthropic", "claude-opus-4-8").system_turns == "after-user"
    assert rules_for("anthropic", "claude-opus-4-7").system_turns == "refused"
    assert rules_for("openai", "gpt-5.6-sol").system_turns == "anywhere"
    assert rules_for("gemini", "gemini-2.5-pro").system_turns == "refused"


def test_openai_takes_marks_from_gpt_5_6_on_and_keeps_prefixes_by_itself_before():
    new, old = rules_for("openai", "gpt-5.6-sol"), rules_for("openai", "gpt-5.1")
    assert (new.scheme, new.marks, new.minimum, new.write_factors) == ("marks", 4, 1024, (1.25,))
    assert (old.scheme, old.marks, old.minimum, old.step, old.write_factors[0]) == ("automatic", 0, 1024, 128, 1.0)


@pytest.mark.parametrize("provider", ["anthropic", "bedrock"])
def test_what_others_can_edit_stands_in_tool_results_and_what_the_user_trusts_in_the_users_turn(provider):
    channels = rules_for(provider, "some-model").channels
    assert {trust for trust in TRUSTS if channels[trust] == "tool_result"} == {"third-party", "inferred"}
    assert {trust for trust in TRUSTS if channels[trust] == "user"} == {"operator", "user", "unrecorded"}


def test_learned_text_may_stand_in_system_for_openai():
    assert set(rules_for("openai", "gpt-5.1").channels.values()) == {"system"}


def test_channels_are_those_that_blocks_can_declare():
    assert CHANNELS == taxonomy.CHANNELS


# Names.


@pytest.mark.parametrize(
    ("provider", "model", "pattern"),
    [
        ("anthropic", "claude-opus-4-5-20251101", "claude-opus-4-5"),
        ("anthropic", "claude-opus-4-5@20251101", "claude-opus-4-5"),
        ("anthropic", "claude-sonnet-4-20250514", "claude-sonnet-4"),
        ("anthropic", "claude-3-7-sonnet-latest", "claude-3-7-sonnet"),
        ("anthropic", "claude-opus-5-5", "claude-opus-5-5"),
        ("anthropic", "claude-opus-5-9", "*"),
        ("anthropic", "", "*"),
        ("openai", "gpt-5.6-terra-2026-07-09", "gpt-5.6-terra"),
        ("openai", "gpt-5.6-other", "gpt-5.6*"),
        ("openai", "gpt-5-mini-2025-08-07", "gpt-5-mini"),
        ("gemini", "models/gemini-2.5-flash", "gemini-2.5-flash"),
        ("gemini", "publishers/google/models/gemini-3.1-pro-preview", "gemini-3.1-pro*"),
        ("bedrock", "anthropic.claude-opus-4-5-20251101-v1:0", "anthropic.claude-opus-4-5"),
        ("bedrock", "us.anthropic.claude-opus-4-6-v1", "anthropic.claude-opus-4-6"),
        (
            "bedrock",
            "arn:aws:bedrock:us-east-1:111:inference-profile/global.anthropic.claude-haiku-4-5-20251001-v1:0",
            "anthropic.claude-haiku-4-5",
        ),
        ("bedrock", "arn:aws:bedrock:us-east-1:111:application-inference-profile/abc", "*"),
    ],
)
def test_region_path_version_and_date_of_a_name_do_not_matter(provider, model, pattern):
    assert rules_for(provider, model).model == pattern


@given(st.sampled_from(PROVIDERS), st.text())
def test_any_name_gets_rules_and_its_base_name_is_a_part_of_it(provider, model):
    assert rules_for(provider, model).provider == provider
    assert base_name(provider, model) in model


def test_an_unknown_provider_is_an_error_that_lists_what_there_is():
    for ask in (lambda: rules_for("mistral", "m"), lambda: known_models("mistral"), lambda: rules_for(None, "m")):
        with pytest.raises(InvalidDeclarationError, match="anthropic, openai, gemini, bedrock"):
            ask()
    with pytest.raises(InvalidDeclarationError, match="model"):
        rules_for("anthropic", None)


def test_rules_are_values():
    rules = rules_for("anthropic", "claude-opus-5")
    assert pickle.loads(pickle.dumps(rules)) == copy.deepcopy(rules) == rules  # noqa: S301 - pickled right here
    assert hash(rules) == hash(copy.deepcopy(rules))
    assert rules is rules_for("anthropic", "claude-opus-5")
    with pytest.raises(KeyError):
        rules.channels["nobody"]
    tables = read_rules({"gemini": {"minimum": 3, "models": {"a*": {"step": 2}}}})
    again = pickle.loads(pickle.dumps(tables))  # noqa: S301 - pickled right here
    assert again == tables
    assert hash(again) == hash(tables)
    assert hash(again.providers["gemini"]) == hash(tables.providers["gemini"])


# Overrides.

NAMES = st.sampled_from(["model-a", "model-ab", "model-b", "other"])
PATTERNS = st.sampled_from(["*", "model-*", "model-a", "model-a*", "model-a?", "*-b", "m*b", "o[st]her"])
KEYS = st.fixed_dictionaries(
    {}, optional={"minimum": st.integers(0, 9), "read_factor": st.integers(0, 9), "source": st.sampled_from("xyz")}
)
TABLE = st.builds(lambda keys, models: {**keys, "models": models}, KEYS, st.dictionaries(PATTERNS, KEYS, max_size=6))


def merged(model: str, overrides: list[dict[str, Any]]) -> dict[str, Any]:
    """What overrides come to for a model, in plain Python."""
    values: dict[str, Any] = {}
    for table in overrides:
        values.update({key: value for key, value in table.items() if key != "models"})
        named = [pattern for pattern in table["models"] if fnmatch.fnmatchcase(model, pattern)]
        named.sort(key=lambda pattern: (len(pattern) - sum(map(pattern.count, "*?[]")), "*" not in pattern, pattern))
        for pattern in named:
            values.update(table["models"][pattern])
    return values


@given(NAMES, st.lists(TABLE, max_size=3), st.randoms(use_true_random=False))
def test_later_overrides_win_and_within_one_the_closest_name_key_by_key(model, tables, random):
    shuffled = []
    for table in tables:
        models = list(table["models"].items())
        random.shuffle(models)
        shuffled.append({"gemini": {**table, "models": dict(models)}})
    found = rules_for("gemini", model, overrides=shuffled)
    assert found == rules_for("gemini", model, overrides=[{"gemini": table} for table in tables])
    expected = attrs.evolve(rules_for("gemini", model), **merged(model, tables), model=found.model)
    assert found == expected


def test_an_override_of_the_provider_counts_for_models_that_the_packaged_data_names():
    assert rules_for("anthropic", "claude-opus-5", overrides=[{"anthropic": {"minimum": 7}}]).minimum == 7


def test_an_override_of_one_channel_leaves_the_others():
    found = rules_for("anthropic", "m", overrides=[{"anthropic": {"channels": {"inferred": "system"}}}]).channels
    assert (found["inferred"], found["third-party"], found["user"]) == ("system", "tool_result", "user")


def test_a_file_overrides_every_key(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text(
        """
        [openai]
        as_of = 2026-12-24
        source = "https://example.test/caching"
        [openai.models."house-*"]
        scheme = "marks"
        marks = 2
        minimum = 100
        step = 16
        lookback = 5
        ttls = [60, 120]
        write_factors = [1, 1.5]
        read_factor = 0
        input_price = 0.5
        output_price = 2
        unmarkable = ["image", "reasoning"]
        system_turns = "after-user"
        binds_reasoning = true
        drops_reasoning = true
        channels = {user = "user"}
        """
    )
    tables = load_rules(file)
    found = rules_for("openai", "house-1", overrides=[tables])
    assert found == ModelRules(
        provider="openai",
        model="house-*",
        as_of=dt.date(2026, 12, 24),
        source="https://example.test/caching",
        scheme="marks",
        marks=2,
        minimum=100,
        step=16,
        lookback=5,
        ttls=(60, 120),
        write_factors=(1.0, 1.5),
        read_factor=0.0,
        input_price=0.5,
        output_price=2.0,
        unmarkable=frozenset({"image", "reasoning"}),
        system_turns="after-user",
        binds_reasoning=True,
        drops_reasoning=True,
        channels=attrs.evolve(found.channels),
    )
    assert found.channels["user"] == "user"
    assert found.channels["inferred"] == "system"
    assert rules_for("openai", "other", overrides=[tables]).minimum == 1024
    assert rules_for("gemini", "house-1", overrides=[tables]) == rules_for("gemini", "house-1")
    assert rules_for("openai", "house-1").minimum == 1024


def test_one_mark_is_enough_for_a_scheme_of_marks():
    assert rules_for("anthropic", "m", overrides=[{"anthropic": {"marks": 1}}]).marks == 1


def test_a_lookback_over_everything_is_said_in_words():
    assert rules_for("anthropic", "m", overrides=[{"anthropic": {"lookback": "all"}}]).lookback is None
    assert rules_for("anthropic", "m", overrides=[{"anthropic": {"lookback": 1}}]).lookback == 1


@pytest.mark.parametrize(
    ("text", "where", "key", "says"),
    [
        ("[antropic]", "mine.toml", "antropic", "'anthropic'"),
        ("anthropic = 1", "mine.toml, [anthropic]", None, "table"),
        ("[anthropic]\nminimun = 1", "mine.toml, [anthropic]", "minimun", "'minimum'"),
        ("[anthropic]\nzzz = 1", "mine.toml, [anthropic]", "zzz", "there are as_of"),
        ("[anthropic]\nmodels = 1", "mine.toml, [anthropic.models]", None, "table"),
        ('[anthropic.models]\n"a*" = 1', 'mine.toml, [anthropic.models."a*"]', None, "table"),
        ('[anthropic.models."a*"]\nmarks = -1', 'mine.toml, [anthropic.models."a*"]', "marks", "at least 0"),
        ("[anthropic]\nmarks = true", "mine.toml, [anthropic]", "marks", "whole number"),
        ("[anthropic]\nminimum = 1.5", "mine.toml, [anthropic]", "minimum", "whole number"),
        ("[anthropic]\nstep = 0", "mine.toml, [anthropic]", "step", "at least 1"),
        ("[anthropic]\nlookback = 0", "mine.toml, [anthropic]", "lookback", "at least 1"),
        ('[anthropic]\nlookback = "some"', "mine.toml, [anthropic]", "lookback", '"all"'),
        ("[anthropic]\nttls = []", "mine.toml, [anthropic]", "ttls", "shortest first"),
        ("[anthropic]\nttls = [3600, 300]", "mine.toml, [anthropic]", "ttls", "shortest first"),
        ("[anthropic]\nttls = [300]", "mine.toml, [anthropic]", "write_factors", "[300]"),
        ("[anthropic]\nwrite_factors = [1, -1]", "mine.toml, [anthropic]", "write_factors", "one for each TTL"),
        ("[anthropic]\nread_factor = nan", "mine.toml, [anthropic]", "read_factor", "number"),
        ("[anthropic]\nread_factor = inf", "mine.toml, [anthropic]", "read_factor", "number"),
        ('[anthropic]\ninput_price = "4"', "mine.toml, [anthropic]", "input_price", "number"),
        ('[anthropic]\nscheme = "mark"', "mine.toml, [anthropic]", "scheme", "marks, automatic, handle, none"),
        ('[anthropic]\nscheme = "automatic"', "mine.toml, [anthropic]", "marks", "must be 0"),
        ('[openai]\nscheme = "marks"', "mine.toml, [openai]", "marks", "above 0"),
        ('[anthropic]\nsystem_turns = "yes"', "mine.toml, [anthropic]", "system_turns", "after-user"),
        ("[anthropic]\nbinds_reasoning = 1", "mine.toml, [anthropic]", "binds_reasoning", "true or false"),
        ('[anthropic]\nunmarkable = "text"', "mine.toml, [anthropic]", "unmarkable", "list of kinds"),
        ('[anthropic]\nunmarkable = ["txt"]', "mine.toml, [anthropic]", "unmarkable", "reasoning"),
        ('[anthropic]\nsource = ""', "mine.toml, [anthropic]", "source", "text in quotes"),
        ("[anthropic]\nas_of = 2026-12-01T10:00:00", "mine.toml, [anthropic]", "as_of", "date"),
        ('[anthropic.channels]\nuser = "assistant"', "mine.toml, [anthropic]", "channels", "tool_result"),
        ('[anthropic.channels]\nnobody = "user"', "mine.toml, [anthropic]", "channels", "third-party"),
        ("[anthropic.channels]\nuser = []", "mine.toml, [anthropic]", "channels", "tool_result"),
        ("[anthropic", "mine.toml", None, "no TOML"),
    ],
)
def test_a_file_that_cannot_mean_anything_is_an_error_that_names_file_table_and_key(tmp_path, text, where, key, says):
    file = tmp_path / "mine.toml"
    file.write_text(text)
    with pytest.raises(InvalidDeclarationError) as caught:
        rules_for("openai" if "[openai" in text else "anthropic", "abc", overrides=[load_rules(file)])
    error = pickle.loads(pickle.dumps(caught.value))  # noqa: S301 - pickled right here
    assert (error.where, error.field) == (where, key)
    assert says in str(error)


def test_a_file_that_is_not_utf_8_or_not_there_is_an_error(tmp_path):
    file = tmp_path / "mine.toml"
    with pytest.raises(SourceUnavailableError, match=r"mine\.toml"):
        load_rules(file)
    file.write_bytes(b"[anthropic]\nsource = '\xff'")
    with pytest.raises(InvalidDeclarationError, match="UTF-8"):
        load_rules(file)
    file.write_text("a = " + "[" * 5000)
    with pytest.raises(InvalidDeclarationError):
        load_rules(file)


@pytest.mark.parametrize("tables", [None, 3, [], {"anthropic": None}, {"anthropic": {3: 4}}, {3: {}}, "anthropic"])
def test_overrides_of_any_type_are_a_typed_error(tables):
    with pytest.raises(InvalidDeclarationError):
        read_rules(tables)
    with pytest.raises(InvalidDeclarationError):
        rules_for("anthropic", "m", overrides=[tables])
