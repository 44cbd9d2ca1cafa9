"""``promptkeel demo``: an office's memory, its prompt, a correction by another process, and what that costs."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections import defaultdict
from contextlib import ExitStack
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, final

import attrs
import click
from rich.console import Console
from rich.text import Text

from promptkeel import blocking
from promptkeel.blocks import FileSource, PromptBlockSpec, StaticSource
from promptkeel.cli.declarations import DEFAULT_BLOCKS, declare_blocks
from promptkeel.cli.demo_blocks import govern, show_governed
from promptkeel.cli.display import Column, Screen, arranged, counted, plain_table, put_document, writing
from promptkeel.cli.reading import print_prompt, prompt_document, short_revision
from promptkeel.errors import StoreUnavailableError
from promptkeel.exchange import ImportReport, ImportSettings, JsonLines, import_steps
from promptkeel.prompt import Prompt
from promptkeel.resolver import BlockEvent
from promptkeel.scope import TenantScope
from promptkeel.steps import drive_blocking

SCOPE: Final = TenantScope.parse("org:harbour/user:reception")
BOUNDARIES: Final = "Never give a visitor's name or number to another visitor."
RULES: Final = "- Answer in the language of the question.\n- Say since when you know something, if asked.\n"
CORRECTED: Final = "reception-delegation"
LABEL: Final = "FOCUS:expects a delegation of fourteen on Thursday"

STATEMENT: Final = "UPDATE nodes SET label = ? WHERE root = 'org:harbour' AND id = ?"
_PROGRAM: Final = f"""
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
with connection:
    connection.execute({STATEMENT!r}, sys.argv[2:])
connection.close()
"""

_TABLE: Final = (
    Column("block"),
    Column("facts", justify="right"),
    Column("tokens", justify="right"),
    Column("revision"),
    Column("what was done", wraps=True),
    Column("µs", justify="right"),
)
_DONE: Final = {"scanned": "read whole", "updated": "updated", "rendered": "rendered", "read": "file read"}


@final
@attrs.frozen(eq=False)
class Look:
    """A prompt and the work that it took."""

    prompt: Prompt
    events: tuple[BlockEvent, ...]

    def actions(self, block: str) -> tuple[str, ...]:
        """What was done for a block; nothing where it was reused."""
        return tuple(dict.fromkeys(event.action for event in self.events if event.block == block))

    def rows(self) -> list[tuple[Any, ...]]:
        """The rows of the table of blocks."""
        spent: defaultdict[str, float] = defaultdict(float)
        for event in self.events:
            spent[event.block] += event.microseconds
        return [
            (
                block.name,
                len(block.facts) if block.is_learned and block.state != "omitted" else "",
                self.prompt.block_tokens[block.name],
                short_revision(block.revision_id),
                ", ".join(_DONE.get(action, action) for action in self.actions(block.name)) or "reused",
                f"{spent[block.name]:.0f}" if block.name in spent else "",
            )
            for block in self.prompt.blocks
        ]


@final
@attrs.frozen(eq=False)
class Change:
    """What differs between the bytes of two prompts."""

    offset: int
    removed: int
    inserted: int
    before: tuple[str, ...]
    after: tuple[str, ...]


def changed_bytes(before: str, after: str) -> Change:
    """Where two texts differ: from the first to the last byte that does, and the lines that hold them."""
    old, new = before.encode(), after.encode()
    shortest = min(len(old), len(new))
    start = next((place for place in range(shortest) if old[place] != new[place]), shortest)
    most = shortest - start
    end = next((place for place in range(most) if old[-1 - place] != new[-1 - place]), most)
    removed, inserted = len(old) - end - start, len(new) - end - start
    return Change(start, removed, inserted, _lines(old, start, removed), _lines(new, start, inserted))


def _lines(text: bytes, start: int, size: int) -> tuple[str, ...]:
    begin = text.rfind(b"\n", 0, start) + 1
    end = text.find(b"\n", start + size)
    return tuple(text[begin : len(text) if end < 0 else end].decode().split("\n"))


@click.command
@click.option("--json", "as_json", is_flag=True, help="Print exactly one JSON document.")
def demo(as_json: bool) -> None:
    """Show it all in a temporary folder: import an office, print a prompt, correct a fact from another process.

    Then a block of each kind, a source that fails under each policy, and an edit of a stored block with its diff.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="promptkeel-")))
        rules = folder / "rules.md"
        rules.write_text(RULES, encoding="utf-8")
        events: list[BlockEvent] = []
        blocks = [
            PromptBlockSpec(name="BOUNDARIES", source=StaticSource(BOUNDARIES)),
            PromptBlockSpec(name="RULES", source=FileSource(rules)),
            *declare_blocks(DEFAULT_BLOCKS),
        ]
        store = folder / "office.db"
        keel = stack.enter_context(blocking.open(f"sqlite:///{store.as_posix()}", blocks=blocks, observe=events.append))
        report = _import_sample(keel)
        first = _look(keel, events)
        _correct_elsewhere(store)
        second = _look(keel, events)
        third = _look(keel, events)
        governed = govern()
        if as_json:
            put_document({**_document(report, first, second, third), "blocks": governed.to_json()})
        else:
            with writing():
                screen = Screen()
                _show(screen, folder, report, first, second, third)
                show_governed(screen, governed)


def _import_sample(keel: blocking.Keel) -> ImportReport:
    sample = files("promptkeel.cli").joinpath("sample.jsonl")
    with sample.open("rb") as stream:
        return drive_blocking(
            import_steps(keel.core.store, stream, JsonLines(), ImportSettings(name="sample.jsonl"))  # type: ignore[arg-type]
        )


def _look(keel: blocking.Keel, events: list[BlockEvent]) -> Look:
    events.clear()
    prompt = keel.prompt(SCOPE)
    return Look(prompt, tuple(events))


def _correct_elsewhere(store: Path) -> None:
    finished = subprocess.run(  # noqa: S603 - this interpreter and a program that stands above
        [sys.executable, "-c", _PROGRAM, str(store), LABEL, CORRECTED], capture_output=True, text=True, check=False
    )
    if finished.returncode:
        last = (finished.stderr.strip() or "no message").splitlines()[-1]
        raise StoreUnavailableError(f"the other process could not correct the fact: {last}")


def _same(first: Look, second: Look) -> list[str]:
    """The blocks whose text is the very same string object in both prompts."""
    return [block.name for block in second.prompt.blocks if block.text is first.prompt.block(block.name).text]


def _document(report: ImportReport, first: Look, second: Look, third: Look) -> dict[str, Any]:
    change = changed_bytes(first.prompt.text, second.prompt.text)
    return {
        "imported": {"statements": report.inserted, "edges": report.linked},
        "prompts": [_look_document(each) for each in (first, second)],
        "correction": {"sql": STATEMENT, "arguments": [LABEL, CORRECTED]},
        "changed_bytes": {
            "offset": change.offset,
            "removed": change.removed,
            "inserted": change.inserted,
            "before": list(change.before),
            "after": list(change.after),
        },
        "same_string_object": _same(first, second),
        "third_prompt_is_second": third.prompt is second.prompt,
    }


def _look_document(look: Look) -> dict[str, Any]:
    events = [{"block": each.block, "action": each.action, "microseconds": each.microseconds} for each in look.events]
    return {**prompt_document(look.prompt), "work": events}


def _show(console: Console, folder: Path, report: ImportReport, first: Look, second: Look, third: Look) -> None:
    change = changed_bytes(first.prompt.text, second.prompt.text)
    same = _same(first, second)
    held = f"{counted(report.inserted, 'statement')} of an office and {counted(report.linked, 'edge')}"
    _say(console, f"A store in {folder}, with {held}.")
    _say(console, f"The prompt of {SCOPE.path}, {first.prompt.tokens} tokens:")
    print_prompt(console, first.prompt.text)
    _say(console, "Its blocks, read for the first time:")
    _put_blocks(console, first)
    _say(console, "Now another process corrects one fact, with the standard library's sqlite3 and plain SQL:")
    console.print(Text(f"  {STATEMENT}", style="cyan"))
    console.print(Text(f"  ({LABEL!r}, {CORRECTED!r})", style="cyan"))
    _say(console, "The same blocks in the next prompt:")
    _put_blocks(console, second)
    size = len(second.prompt.text.encode())
    _say(console, f"Changed: {change.removed} bytes became {change.inserted}, at byte {change.offset} of {size}:")
    for line in change.before:
        console.print(Text(f"  - {line}", style="red"))
    for line in change.after:
        console.print(Text(f"  + {line}", style="green"))
    _say(console, f"The very same string objects as before: {', '.join(same)}.")
    if third.prompt is second.prompt:
        console.print("And where nothing has changed, the next prompt is the very same object.")


def _say(console: Console, text: str) -> None:
    console.print()
    console.print(Text(text, style="bold"))


def _put_blocks(console: Console, look: Look) -> None:
    if console.is_terminal:
        console.print(arranged(_TABLE, look.rows(), console.width))
    else:
        console.file.write(plain_table(_TABLE, look.rows()))
