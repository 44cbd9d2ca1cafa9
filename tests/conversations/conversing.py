"""A worker of a conversation in a process of its own: takes one turn, says what it got, and waits to be ended."""

from __future__ import annotations

import json
import sys

import promptkeel as pk
from promptkeel import blocking
from promptkeel.blocks import StoredSource

ADA = pk.TenantScope.parse("org:acme/user:ada")


def specs():
    return [
        pk.PromptBlockSpec(name="BOUNDARIES", source=pk.StaticSource("Never guess. " * 400)),
        pk.PromptBlockSpec(name="RULES", source=StoredSource("tenant", required=False)),
        pk.PromptBlockSpec(name="USER_PROFILE", source=pk.MemoryLane("SOUL:")),
    ]


def main() -> None:
    """Answers each line of input, the messages of a turn, with a line of output."""
    with blocking.open(sys.argv[1], blocks=specs()) as keel:
        conversation = keel.conversation(ADA, "c1")
        for line in sys.stdin:
            request = conversation.turn(json.loads(line), format="anthropic", model="claude-opus-5", max_tokens=10)
            said = {
                "arguments": request.arguments,
                "history": list(request.history),
                "delta": list(request.delta),
                "rewritten": request.rewritten,
                "base": request.base.text,
            }
            sys.stdout.write(json.dumps(said) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
