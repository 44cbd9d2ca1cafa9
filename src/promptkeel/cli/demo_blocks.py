"""The second part of the demo: a block of each kind, a source that fails under each policy, an edit with its diff."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, Final, final

import attrs
from rich.console import Console
from rich.text import Text

from promptkeel import blocking
from promptkeel.blocks import (
    FAILURE_ACTIONS,
    ComputedSource,
    FailurePolicy,
    FileSource,
    MemoryLane,
    PromptBlockSpec,
    StaticSource,
    StoredSource,
)
from promptkeel.blocks.failures import FailureAction
from promptkeel.cli.display import Column, arranged, plain_table
from promptkeel.errors import BlockResolutionError
from promptkeel.scope import TenantScope

SCOPE: Final = TenantScope.parse("org:harbour/user:reception")
HOURS: Final = ("Open from 9 to 17.\nClosed on Sundays.\n", "Open from 9 to 18.\nClosed on Sundays.\n")

_KINDS: Final = (Column("block"), Column("kind"), Column("tier"), Column("says", wraps=True))
_POLICIES: Final = (Column("on failure"), Column("the prompt while the source is down", wraps=True))


@final
@attrs.frozen(order=False)
class Governed:
    """What the second part found.

    Attributes:
        kinds: name, kind, tier and content of one block of each kind.
        policies: what a prompt was under each failure policy while its source was down.
        diff: what an edit of a stored block changed.
    """

    kinds: tuple[tuple[str, str, str, str], ...]
    policies: tuple[tuple[FailureAction, str], ...]
    diff: str

    def to_json(self) -> dict[str, Any]:
        """A plain dictionary."""
        names = ("block", "kind", "tier", "says")
        return {
            "kinds": [dict(zip(names, row, strict=True)) for row in self.kinds],
            "policies": dict(self.policies),
            "diff": self.diff,
        }


def govern() -> Governed:
    """Declare blocks in a temporary folder, let a source fail, edit a stored block."""
    with tempfile.TemporaryDirectory(prefix="promptkeel-") as name:
        folder = Path(name)
        rules = folder / "rules.md"
        rules.write_text("Answer in the language of the question.\n", encoding="utf-8")
        blocks = [
            PromptBlockSpec(name="BOUNDARIES", source=StaticSource("Never name one visitor to another.")),
            PromptBlockSpec(name="RULES", source=FileSource(rules)),
            PromptBlockSpec(name="ENVIRONMENT", source=ComputedSource(lambda scope: (f"You serve {scope.path}.", "1"))),
            PromptBlockSpec(name="HOURS", source=StoredSource("tenant")),
            PromptBlockSpec(name="USER_PROFILE", source=MemoryLane("SOUL:")),
            PromptBlockSpec(name="NOTES", source=StoredSource("scope", learned=True), tier="session"),
        ]
        with blocking.open(f"sqlite:///{(folder / 'blocks.db').as_posix()}", blocks=blocks) as keel:
            for text in HOURS:
                keel.blocks.append(
                    TenantScope.parse(SCOPE.root), "HOURS", text, author="office", message="opening hours"
                )
            keel.blocks.append(
                SCOPE, "NOTES", "Ask for the delegation's size.", author="agent:reception", trust="inferred"
            )
            keel.remember(SCOPE, "speaks Japanese", block="USER_PROFILE", source="onboarding")
            kinds = tuple(
                (block.name, block.spec.source.kind, block.spec.tier, " ".join(block.text.split("\n")[1:]))
                for block in keel.prompt(SCOPE).blocks
            )
            diff = keel.blocks.diff(TenantScope.parse(SCOPE.root), "HOURS", 1, 2).unified()
    return Governed(kinds, tuple((action, _while_down(action)) for action in FAILURE_ACTIONS), diff)


def _while_down(action: FailureAction) -> str:
    """What a prompt with one block is while its source, which has answered once, fails."""
    is_down = False

    def weather(_: TenantScope) -> tuple[str, str]:
        if is_down:
            raise ConnectionError("the weather service does not answer")
        return "Rain until noon.", "w1"

    spec = PromptBlockSpec(name="WEATHER", source=ComputedSource(weather), on_failure=FailurePolicy(action))
    with blocking.open("ram:", blocks=[spec]) as keel:
        keel.prompt(SCOPE)
        is_down = True
        try:
            prompt = keel.prompt(SCOPE)
        except BlockResolutionError as error:
            return f"{type(error).__name__}: {error}"
    shown = [line for block in prompt.blocks for line in block.text.split("\n")[1:] if block.text]
    return " / ".join([*shown, *prompt.notices])


def show_governed(console: Console, found: Governed) -> None:
    """Print the second part."""
    _say(console, "A block of each kind:")
    _put(console, _KINDS, found.kinds)
    _say(console, "A source that answered once and then fails, under each policy:")
    _put(console, _POLICIES, found.policies)
    _say(console, "What the last edit of HOURS changed ('promptkeel block diff' shows it too):")
    for line in found.diff.splitlines():
        style = "green" if line.startswith("+") else "red" if line.startswith("-") else ""
        console.print(Text(f"  {line}", style=style))


def _say(console: Console, text: str) -> None:
    console.print()
    console.print(Text(text, style="bold"))


def _put(console: Console, columns: tuple[Column, ...], rows: Any) -> None:
    if console.is_terminal:
        console.print(arranged(columns, rows, console.width))
    else:
        console.file.write(plain_table(columns, rows))
