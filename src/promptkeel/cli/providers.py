"""The command that shows the rules of providers: what is packaged, with what the caller knows better."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import click

from promptkeel.blocks.configuration import DEFAULT_NAME
from promptkeel.cli.display import Column, put_document, put_table
from promptkeel.cli.options import FilePath, read_configuration
from promptkeel.providers.rules import PROVIDERS, ModelRules, load_rules, rules_for, rules_table

_COLUMNS: Final = (
    Column("provider"),
    Column("model"),
    Column("as of"),
    Column("scheme"),
    Column("minimum", "right"),
    Column("marks", "right"),
    Column("TTLs", "right"),
    Column("write", "right"),
    Column("read", "right"),
    Column("input", "right"),
    Column("output", "right"),
)


@click.command()
@click.argument("provider", type=click.Choice(PROVIDERS), required=False)
@click.option("--model", metavar="NAME", help="Only the rules of this model, as a request names it.")
@click.option(
    "--rules",
    "files",
    type=FilePath(exists=True),
    multiple=True,
    metavar="FILE",
    help="A file of rules that go before the packaged ones; may be given again, the last one wins.",
)
@click.option(
    "--config",
    "configuration",
    type=FilePath(exists=True),
    envvar="PROMPTKEEL_CONFIG",
    show_envvar=True,
    show_default=f"{DEFAULT_NAME}, if it is here",
    metavar="FILE",
    help="The file whose [providers] go before the packaged rules too.",
)
@click.option("--json", "as_json", is_flag=True, help="Print exactly one JSON document.")
def providers(
    provider: str | None, model: str | None, files: Sequence[str], configuration: str | None, as_json: bool
) -> None:
    """Show what providers do with prompts: limits, cache lifetimes and prices, and when they were looked up.

    Prices are US dollars for a million tokens; write and read are factors of the price of input, one for each lifetime
    in seconds. A model that is not listed gets the rules of '*', the most careful ones.
    """
    if model is not None and provider is None:
        raise click.UsageError("--model needs a provider", click.get_current_context())
    declared = read_configuration(configuration)
    overrides = (*(() if declared is None else declared.rules), *map(load_rules, files))
    if provider is not None and model is not None:
        found: Sequence[ModelRules] = (rules_for(provider, model, overrides=overrides),)
    else:
        found = [each for each in rules_table(overrides=overrides) if provider in (None, each.provider)]
    if as_json:
        put_document({"providers": [rules_document(each) for each in found]})
    else:
        put_table(_COLUMNS, [_row(each) for each in found])


def rules_document(rules: ModelRules) -> dict[str, Any]:
    """Rules as ``--json`` prints them."""
    return {
        "provider": rules.provider,
        "model": rules.model,
        "as_of": rules.as_of.isoformat(),
        "source": rules.source,
        "scheme": rules.scheme,
        "marks": rules.marks,
        "minimum": rules.minimum,
        "step": rules.step,
        "lookback": rules.lookback,
        "ttls": list(rules.ttls),
        "write_factors": list(rules.write_factors),
        "read_factor": rules.read_factor,
        "input_price": rules.input_price,
        "output_price": rules.output_price,
        "unmarkable": sorted(rules.unmarkable),
        "system_turns": rules.system_turns,
        "binds_reasoning": rules.binds_reasoning,
        "drops_reasoning": rules.drops_reasoning,
        "channels": dict(rules.channels),
    }


def _row(rules: ModelRules) -> tuple[object, ...]:
    return (
        rules.provider,
        rules.model,
        rules.as_of.isoformat(),
        rules.scheme,
        rules.minimum,
        rules.marks,
        ", ".join(map(str, rules.ttls)),
        ", ".join(f"{factor:g}" for factor in rules.write_factors),
        f"{rules.read_factor:g}",
        _price(rules.input_price),
        _price(rules.output_price),
    )


def _price(price: float | None) -> str:
    return "unknown" if price is None else f"{price:g}"
