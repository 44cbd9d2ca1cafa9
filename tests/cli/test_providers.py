"""``promptkeel providers``: what is packaged, with what files say better."""

from __future__ import annotations

import csv

import pytest

from promptkeel.providers.rules import PROVIDERS, known_models, rules_for


def rows(out):
    return list(csv.DictReader(out.splitlines(), delimiter="\t"))


def test_every_known_model_and_the_rest_of_each_provider_are_shown_with_date_limits_and_prices(call):
    found = call("providers")
    assert found.code == 0, found.err
    shown = {(row["provider"], row["model"]): row for row in rows(found.out)}
    assert set(shown) == {(each, model) for each in PROVIDERS for model in ("*", *known_models(each))}
    row = shown["anthropic", "claude-opus-4-8"]
    assert (row["minimum"], row["marks"], row["TTLs"], row["write"]) == ("1024", "4", "300, 3600", "1.25, 2")
    assert (row["as of"], row["scheme"], row["input"]) == ("2026-12-01", "marks", "5")
    assert (shown["anthropic", "*"]["minimum"], shown["anthropic", "*"]["input"]) == ("4096", "unknown")


def test_one_document_says_everything(call):
    documents = call("providers", "gemini", "--json").document["providers"]
    assert [each["model"] for each in documents] == ["*", *known_models("gemini")]
    rules = rules_for("gemini", "gemini-2.5-flash")
    document = next(each for each in documents if each["model"] == "gemini-2.5-flash")
    assert document["as_of"] == rules.as_of.isoformat()
    for name in ("source", "scheme", "marks", "minimum", "step", "lookback", "read_factor", "input_price",
                 "output_price", "system_turns", "binds_reasoning", "drops_reasoning"):  # fmt: skip
        assert document[name] == getattr(rules, name)
    assert (document["ttls"], document["write_factors"]) == (list(rules.ttls), list(rules.write_factors))
    assert (document["unmarkable"], document["channels"]) == ([], dict(rules.channels))


def test_one_model_is_shown_by_the_name_of_a_request(call):
    found = call("providers", "bedrock", "--model", "us.anthropic.claude-haiku-4-5-20251001-v1:0", "--json").document
    assert [(each["model"], each["minimum"]) for each in found["providers"]] == [("anthropic.claude-haiku-4-5", 4096)]


def test_files_go_before_what_is_packaged_and_the_last_one_wins(call, folder):
    (folder / "promptkeel.toml").write_text("[providers.openai]\nminimum = 1\nstep = 2\nread_factor = 0.3")
    (folder / "a.toml").write_text('[openai]\nminimum = 3\nstep = 4\n[openai.models."house-*"]\ninput_price = 9')
    (folder / "b.toml").write_text("[openai]\nminimum = 5")
    arguments = ("providers", "openai", "--rules", "a.toml", "--rules", "b.toml", "--json")
    shown = {each["model"]: each for each in call(*arguments).document["providers"]}
    found = shown["house-*"]
    assert (found["minimum"], found["step"], found["read_factor"], found["input_price"]) == (5, 4, 0.3, 9)
    assert set(shown) == {"*", "house-*", *known_models("openai")}


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("mistral",), 2, "anthropic"),
        (("--model", "m"), 2, "--model needs a provider"),
        (("--rules", "bad.toml"), 2, "bad.toml, [openai]: minimun: is no key here; did you mean 'minimum'?"),
        (("--rules", "missing.toml"), 2, "missing.toml"),
    ],
)
def test_what_is_wrong_is_said(call, folder, arguments, code, says):
    (folder / "bad.toml").write_text("[openai]\nminimun = 1")
    found = call("providers", *arguments)
    assert (found.code, found.out) == (code, "")
    assert says in found.err
