"""The command that compares prompts or requests: the first byte that differs, whose it is, and what it costs."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, final

import attrs
import click

from promptkeel.cli.display import Column, put_document, put_line, put_table
from promptkeel.cli.failures import FAILED, OK, MissingStoreError
from promptkeel.cli.options import FilePath, Session, session_options, standard_input
from promptkeel.errors import InvalidInputError, NodeErasedError, NodeNotFoundError
from promptkeel.model import BlockFact
from promptkeel.prompt.comparing import Divergence, Part, compare, parts_of_request
from promptkeel.providers.rules import PROVIDERS, ModelRules, ProviderName, rules_for
from promptkeel.providers.segments import WIRE_FORMATS, WireFormat
from promptkeel.providers.wire import detect_format, read_request
from promptkeel.scope import TenantScope
from promptkeel.tokens import TOKEN_COUNTERS, TokenCounter, token_counter

_HEADING: Final = re.compile(r"^### [A-Z]+ / (.+)$", re.MULTILINE)
_PROVIDERS: Final[Mapping[WireFormat, ProviderName]] = {
    "anthropic": "anthropic",
    "openai-responses": "openai",
    "openai-chat": "openai",
    "gemini": "gemini",
    "bedrock": "bedrock",
}
_WRITES: Final = (Column("change"), Column("fact", wraps=True), Column("source"), Column("id"), Column("last write"))


@final
@attrs.frozen(order=False)
class _Read:
    """What one side of a comparison holds.

    Attributes:
        parts: its text, in named parts.
        rules: of the model that it is for; None where that is not known.
        scope: of the prompt that it is; None where it is none.
        text: the whole text; None of a request.
    """

    parts: Sequence[Part]
    rules: ModelRules | None = None
    scope: TenantScope | None = None
    text: str | None = None

    @property
    def is_plain(self) -> bool:
        """Whether nothing is known but the text."""
        return self.text is not None and self.scope is None


@click.command()
@click.argument("before", type=FilePath(exists=True, allow_dash=True), metavar="A")
@click.argument("after", type=FilePath(exists=True, allow_dash=True), metavar="B")
@click.option(
    "--format",
    "wire_format",
    type=click.Choice(WIRE_FORMATS),
    help="How the requests are spelled, where their form alone does not say it.",
)
@click.option("--model", metavar="PROVIDER/NAME", help="Whose prices are taken, as anthropic/claude-opus-4-8.")
@click.option(
    "--tokens",
    "counter_name",
    type=click.Choice(TOKEN_COUNTERS),
    default="estimate",
    show_default=True,
    help="What counts tokens.",
)
@session_options()
def diff(
    session: Session, *, before: str, after: str, wire_format: WireFormat | None, model: str | None, counter_name: str
) -> int:
    """Show where B parts from A: the first byte that differs, whose it is, and how many cached tokens that costs.

    A and B are requests as JSON, in any provider's format; prompts, as 'promptkeel prompt --json' prints them, of which
    the store says who wrote what; or texts. The exit code is 0 where they are equal and 1 where they differ.
    """
    if before == after == "-":
        raise click.UsageError("only one of A and B can be standard input", click.get_current_context())
    counter = token_counter(counter_name)
    one, other = (_read(path, wire_format, counter) for path in (before, after))
    if (one.text is None) != (other.text is None):
        raise InvalidInputError(
            "cannot compare a request with a text; give two of one kind", field=f"{before}, {after}"
        )
    if one.is_plain != other.is_plain:
        # A text names its parts by headings alone; only what is cut alike can be compared part by part.
        one, other = (_Read(_parts_of_text(each.text or "", counter), scope=each.scope) for each in (one, other))
    rules = _rules_of(model) if model is not None else one.rules
    found = compare(one.parts, other.parts, rules=rules)
    if session.as_json:
        put_document(_document(found, _writes(session, found, one)))
    elif found is None:
        put_line("equal, byte for byte")
    else:
        _put(found, _writes(session, found, one), counter)
    return OK if found is None else FAILED


def _rules_of(model: str) -> ModelRules:
    provider, _, name = model.partition("/")
    if provider not in PROVIDERS or not name:
        raise click.UsageError(
            f"--model must be a provider and a name, as anthropic/claude-opus-4-8, not {model!r}",
            click.get_current_context(),
        )
    return rules_for(provider, name)


def _read(path: str, wire_format: WireFormat | None, counter: TokenCounter) -> _Read:
    content = standard_input().read() if path == "-" else Path(path).read_bytes()
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise InvalidInputError(f"is not UTF-8 at byte {error.start}", field=path) from None
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        return _Read(_parts_of_text(text, counter), text=text)
    if isinstance(document.get("blocks"), list) and isinstance(document.get("text"), str):
        return _of_prompt(document, counter, path)
    return _of_request(document, wire_format, counter, path)


def _of_request(document: dict[str, Any], wire_format: WireFormat | None, counter: TokenCounter, path: str) -> _Read:
    # A line of a log holds its request under a name.
    for name in ("request", "body", "params", "arguments"):
        if isinstance(document.get(name), dict):
            document = document[name]
            break
    found = wire_format or detect_format(document)
    if found is None:
        raise InvalidInputError("is JSON that is no request of a known format; say which with --format", field=path)
    request = read_request(found, document)
    return _Read(parts_of_request(request, counter), rules_for(_PROVIDERS[found], request.model))


def _of_prompt(document: dict[str, Any], counter: TokenCounter, path: str) -> _Read:
    """A prompt as ``promptkeel prompt --json`` prints it, its text cut at its blocks."""
    text: str = document["text"]
    parts: list[Part] = []
    place = 0
    try:
        for block in document["blocks"]:
            inner = block["text"]
            start = text.index(inner, place)
            end = start + len(inner)
            if not inner:
                continue
            if not parts:
                parts.append(Part("heading", text[:start], counter(text[:start])))
            else:
                inner = text[place:end]
            facts = tuple(_fact_of(fact) for fact in block.get("statements") or ())
            lasts = block.get("layer") != "volatile"
            parts.append(Part(str(block["name"]), inner, counter(inner), facts, lasts))
            place = end
        scope = TenantScope.parse(document["scope"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InvalidInputError(f"is no prompt as 'promptkeel prompt --json' prints it: {error}", field=path) from None
    rest = text[place:]
    if rest:
        parts.append(Part("notices", rest, counter(rest), lasts=False))
    return _Read(parts, scope=scope, text=text)


def _fact_of(said: Mapping[str, Any]) -> BlockFact:
    return BlockFact(
        said["value"], said.get("source"), said.get("recorded_at"), said.get("field"), said.get("trust"),
        said.get("node_id"),
    )  # fmt: skip


def _parts_of_text(text: str, counter: TokenCounter) -> list[Part]:
    """A text cut at the headings of blocks, where it has any."""
    starts = [0, *(found.start() for found in _HEADING.finditer(text) if found.start())]
    parts = []
    for start, end in zip(starts, [*starts[1:], len(text)], strict=True):
        piece = text[start:end]
        heading = _HEADING.match(piece)
        name = "text" if heading is None else heading[1]
        parts.append(Part(name, piece, counter(piece)))
    return parts


def _writes(session: Session, found: Divergence | None, read: _Read) -> dict[str, str]:
    """What the store says of the nodes whose facts came or went, by their ids."""
    if found is None or read.scope is None:
        return {}
    node_ids = {change.fact.node_id for change in found.facts if change.fact.node_id is not None}
    if not node_ids:
        return {}
    writes: dict[str, str] = {}
    try:
        with session.open() as keel:
            for node_id in sorted(node_ids):
                try:
                    node = keel.history(read.scope, node_id).versions[-1]
                except NodeErasedError:
                    writes[node_id] = "erased"
                except NodeNotFoundError:
                    continue
                else:
                    at = "" if node.updated_at is None else f" {node.updated_at:%Y-%m-%d %H:%M:%S}Z"
                    writes[node_id] = f"{node.state}{at}, source {node.source or 'not recorded'}"
    except MissingStoreError:
        return {}
    return writes


def _document(found: Divergence | None, writes: Mapping[str, str]) -> dict[str, Any]:
    if found is None:
        return {"equal": True, "difference": None}
    difference = {
        "offset": found.offset,
        "part": found.part,
        "kind": found.kind,
        "before": found.before,
        "after": found.after,
        "facts": [
            {
                "change": "new" if change.is_new else "gone",
                "value": change.fact.value,
                "source": change.fact.source,
                "node_id": change.fact.node_id,
                "last_write": writes.get(change.fact.node_id or ""),
            }
            for change in found.facts
        ],
        "lost_tokens": found.lost_tokens,
        "lost_dollars": found.lost_dollars,
    }
    return {"equal": False, "difference": difference}


def _put(found: Divergence, writes: Mapping[str, str], counter: TokenCounter) -> None:
    put_line(f"first different byte: {found.offset}, in {found.part}, which is {found.kind}")
    put_line(f"- {found.before}")
    put_line(f"+ {found.after}")
    if found.facts:
        rows = [
            (
                "new" if change.is_new else "gone",
                change.fact.value,
                change.fact.source,
                change.fact.node_id,
                writes.get(change.fact.node_id or "", ""),
            )
            for change in found.facts
        ]
        put_table(_WRITES, rows)
    counted = "" if counter.exact else "about "
    dollars = "" if found.lost_dollars is None else f", ${found.lost_dollars:.6f} beyond reading them"
    put_line(f"cached tokens lost: {counted}{found.lost_tokens}{dollars}")
