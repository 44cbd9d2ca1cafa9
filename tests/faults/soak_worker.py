"""One of several processes that write and resolve the same scopes: ``python soak_worker.py URL NUMBER SECONDS FILE``.

Each transaction counts one scope's three statements up by compare-and-set, all to the same number. What was
acknowledged is put into a file that all processes share, so that whoever reads it before a prompt knows what that
prompt must show at least. The last line of the output says what was done; anything else that goes wrong is a traceback.
"""

from __future__ import annotations

import asyncio
import json
import mmap
import random
import re
import struct
import sys
import time
from pathlib import Path

import attrs

import promptkeel as pk
from promptkeel import blocking
from promptkeel.errors import ConflictError
from promptkeel.store.operations import Put

ORG = pk.TenantScope.parse("org:acme")
SCOPES = (ORG, ORG.child("user", "a"), ORG.child("user", "b"))
PREFIXES = ("COUNT:", "LEFT:", "RIGHT:")
BLOCKS = [
    pk.PromptBlockSpec(name=prefix[:-1], source=pk.MemoryLane(prefix), on_failure="fail_closed") for prefix in PREFIXES
]
WORKERS = 8
SIZE = 8 * WORKERS * len(SCOPES)
_STATEMENT = re.compile(r'"(\d+):(\d+)"')


def node_id(scope: int, prefix: str) -> str:
    return f"{prefix}{scope}"


def label(scope: int, prefix: str, value: int) -> str:
    """A statement carries its scope, since a prompt shows the ancestors' too."""
    return f"{prefix}{scope}:{value}"


class Acknowledged:
    """The greatest acknowledged number of every worker and scope, in a file that all processes share."""

    def __init__(self, path: str, worker: int) -> None:
        with Path(path).open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), SIZE)
        self._worker = worker

    def put(self, scope: int, value: int) -> None:
        struct.pack_into("q", self._map, 8 * (self._worker * len(SCOPES) + scope), value)

    def newest(self, scope: int) -> int:
        places = (8 * (worker * len(SCOPES) + scope) for worker in range(WORKERS))
        return max(struct.unpack_from("q", self._map, place)[0] for place in places)


class Worker:
    """What one process does."""

    def __init__(self, acknowledged: Acknowledged, number: int, end: float) -> None:
        self.acknowledged = acknowledged
        self.random = random.Random(number)
        self.end = end
        self.done = {"writes": 0, "conflicts": 0, "prompts": 0}
        self.counted = [0] * len(SCOPES)

    def count_up(self, store: blocking.BlockingStore) -> None:
        """One compare-and-set of three nodes."""
        scope = self.random.randrange(len(SCOPES))
        nodes = [store.get(SCOPES[scope], node_id(scope, prefix)) for prefix in PREFIXES]
        value = int(nodes[0].label.rsplit(":", 1)[1]) + 1
        changed = [
            Put(attrs.evolve(node, label=label(scope, prefix, value), updated_at=None), node)
            for node, prefix in zip(nodes, PREFIXES, strict=True)
        ]
        try:
            store.apply(changed)
        except ConflictError:
            self.done["conflicts"] += 1
            return
        self.acknowledged.put(scope, value)
        self.counted[scope] += 1
        self.done["writes"] += 1

    def expected(self) -> tuple[int, list[int]]:
        """A scope to ask for, and what its prompt must show at least; read before it is asked."""
        return self.random.randrange(len(SCOPES)), [self.acknowledged.newest(scope) for scope in range(len(SCOPES))]

    def judge(self, asked: int, least: list[int], prompt: pk.Prompt) -> None:
        """No stale statement, and the three blocks at one point in time."""
        shown = [dict(_STATEMENT.findall(prompt.block(prefix[:-1]).text)) for prefix in PREFIXES]
        visible = [scope for scope in range(len(SCOPES)) if SCOPES[asked].sees(SCOPES[scope])]
        assert shown[0] == shown[1] == shown[2], f"torn: {shown}"
        assert sorted(map(int, shown[0])) == visible, f"lost or leaked: {shown[0]} at {SCOPES[asked]}"
        assert prompt.freshness.strict
        for scope in visible:
            assert int(shown[0][str(scope)]) >= least[scope], f"stale: {shown[0]}, acknowledged {least}"
        self.done["prompts"] += 1

    def run(self, url: str, options: dict[str, float]) -> None:
        with blocking.open(url, blocks=BLOCKS, **options) as keel:
            while time.monotonic() < self.end:
                if self.random.random() < 0.3:
                    self.count_up(keel.store)
                asked, least = self.expected()
                self.judge(asked, least, keel.prompt(SCOPES[asked]))

    async def run_async(self, url: str, options: dict[str, float]) -> None:
        async with pk.open(url, blocks=BLOCKS, **options) as keel:

            async def ask() -> None:
                asked, least = self.expected()
                self.judge(asked, least, await keel.prompt(SCOPES[asked]))

            store = blocking.BlockingStore(keel.store.core.engine)
            while time.monotonic() < self.end:
                if self.random.random() < 0.3:
                    await asyncio.to_thread(self.count_up, store)
                await asyncio.gather(*[ask() for _ in range(4)])


def main() -> None:
    url, number, seconds, path = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), sys.argv[4]
    worker = Worker(Acknowledged(path, number), number, time.monotonic() + seconds)
    options = {"busy_timeout": 60.0}
    if number % 2:
        asyncio.run(worker.run_async(url, options))
    else:
        worker.run(url, options)
    sys.stdout.write(json.dumps({**worker.done, "counted": worker.counted}) + "\n")


if __name__ == "__main__":
    main()
