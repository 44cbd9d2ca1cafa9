"""Rules of providers in ``promptkeel.toml``: beside the model, in the shape of the packaged data."""

from __future__ import annotations

import pytest

from promptkeel.blocks.configuration import load_configuration
from promptkeel.errors import InvalidDeclarationError
from promptkeel.providers.rules import rules_for

SAID = """
[providers.anthropic]
model = "claude-opus-5"
minimum = 600
channels = {inferred = "user"}

[providers.anthropic.models."claude-house-*"]
input_price = 1.5
output_price = 6

[providers.bedrock]
ttls = [300, 3600]
write_factors = [1.25, 2]
"""


@pytest.fixture
def load(tmp_path):
    def write(text):
        path = tmp_path / "promptkeel.toml"
        path.write_text(text, encoding="utf-8")
        return load_configuration(path)

    return write


def test_what_the_file_says_overrides_what_is_packaged(load):
    found = load(SAID)
    assert found.models == {"anthropic": "claude-opus-5"}
    rules = rules_for("anthropic", "claude-opus-5", overrides=found.rules)
    assert (rules.minimum, rules.channels["inferred"], rules.input_price) == (600, "user", 5)
    assert rules_for("anthropic", "claude-house-1", overrides=found.rules).output_price == 6
    assert rules_for("bedrock", "m", overrides=found.rules).ttls == (300, 3600)
    assert rules_for("openai", "m", overrides=found.rules) == rules_for("openai", "m")


def test_a_file_that_names_only_models_overrides_nothing(load):
    assert load('[providers.anthropic]\nmodel = "m"').rules == ()
    assert load("").rules == ()


@pytest.mark.parametrize(
    ("text", "table", "key", "says"),
    [
        ("[providers.openai]\nminimun = 3", "providers.openai", "minimun", "'minimum'"),
        ("[providers.openai]\nminimum = -3", "providers.openai", "minimum", "at least 0"),
        ('[providers.openai]\nmodel = ""\nminimum = 3', "providers.openai", "model", "missing"),
        ("[providers.openai]\nmodel = 3\nminimum = 3", "providers.openai", "model", "text"),
        ("[providers.openai]\nmodels = 3", "providers.openai.models", None, "table"),
        ('[providers.openai.models."a*"]\nstep = 0', 'providers.openai.models."a*"', "step", "at least 1"),
        ('[providers.openai.models."a*"]\nmodel = "m"', 'providers.openai.models."a*"', "model", "no key"),
        ("[providers.anthropic]\nttls = [300]", "providers.anthropic", "write_factors", "one for each"),
        ('[providers.openai.models."a*"]\nscheme = "marks"', "providers.openai", "marks", "above 0"),
    ],
)
def test_what_cannot_mean_anything_is_refused_with_file_table_and_key(load, text, table, key, says):
    with pytest.raises(InvalidDeclarationError) as caught:
        load(text)
    assert (caught.value.where, caught.value.field) == (f"promptkeel.toml, [{table}]", key)
    assert says in str(caught.value)
