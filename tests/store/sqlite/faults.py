"""A VFS that remembers what was written when, so that the disk of any moment of a power cut can be rebuilt.

A disk keeps what was synced. Of what was written since, it keeps any part: here each write with a chance of one half,
and some of them only up to a sector. The same VFS runs out of space, or fails to sync, when it is told to.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import apsw

SECTOR = 512


class Disk:
    """What happened to the files of a store, in order.

    Attributes:
        events: ``(kind, file, ...)``; ``("ack", number)`` where a caller was told that a write is done.
        full_after: how many more writes there is space for; None is enough.
        failing_sync: whether syncing the write-ahead log fails.
    """

    def __init__(self) -> None:
        self.events: list[tuple[Any, ...]] = []
        self.full_after: int | None = None
        self.failing_sync = False
        self.writes = 0

    def acknowledge(self, number: int) -> None:
        """Note that a caller was told so."""
        self.events.append(("ack", number))

    def take_space(self) -> None:
        """Count a write.

        Raises:
            apsw.FullError: there is no space for it.
        """
        self.writes += 1
        if self.full_after is not None:
            if self.full_after <= 0:
                raise apsw.FullError
            self.full_after -= 1

    def after_power_cut(self, moment: int, folder: Path, chance: random.Random) -> set[int]:
        """Put the files of that moment into a folder; what had been acknowledged."""
        durable: dict[str, bytearray] = {}
        waiting: dict[str, list[tuple[Any, ...]]] = {}
        acknowledged: set[int] = set()
        for event in self.events[:moment]:
            match event:
                case ("ack", number):
                    acknowledged.add(number)
                case ("sync", name):
                    for pending in waiting.pop(name, []):
                        _apply(durable, pending)
                case ("delete", name):
                    waiting.pop(name, None)
                    durable.pop(name, None)
                case (_, name, *_):
                    waiting.setdefault(name, []).append(event)
        for events in waiting.values():
            for event in events:
                if chance.random() < 0.5:
                    _apply(durable, _torn(event, chance) if chance.random() < 0.2 else event)
        for name, content in durable.items():
            (folder / name).write_bytes(content)
        return acknowledged


def _apply(files: dict[str, bytearray], event: tuple[Any, ...]) -> None:
    content = files.setdefault(event[1], bytearray())
    if event[0] == "truncate":
        del content[event[2] :]
        return
    _, _, offset, data = event
    content.extend(bytes(max(0, offset - len(content))))
    content[offset : offset + len(data)] = data


def _torn(event: tuple[Any, ...], chance: random.Random) -> tuple[Any, ...]:
    if event[0] != "write":
        return event
    kind, name, offset, data = event
    return kind, name, offset, data[: chance.randrange(0, len(data) + 1) // SECTOR * SECTOR]


class RecordingVFS(apsw.VFS):
    """The operating system's files, with a record of what was done to them."""

    def __init__(self, name: str, disk: Disk) -> None:
        self.disk = disk
        super().__init__(name, base="")

    def xOpen(self, name: Any, flags: list[int]) -> _RecordingFile:  # noqa: N802 - apsw's name
        return _RecordingFile(name, flags, self.disk)

    def xDelete(self, name: str, syncdir: bool) -> None:  # noqa: N802 - apsw's name
        self.disk.events.append(("delete", Path(name).name))
        super().xDelete(name, syncdir)


class _RecordingFile(apsw.VFSFile):
    def __init__(self, name: Any, flags: list[int], disk: Disk) -> None:
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        self._name = "" if path is None else Path(path).name
        self._disk = disk
        super().__init__("", name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802 - apsw's name
        self._disk.take_space()
        self._disk.events.append(("write", self._name, offset, bytes(data)))
        super().xWrite(data, offset)

    def xTruncate(self, size: int) -> None:  # noqa: N802 - apsw's name
        self._disk.events.append(("truncate", self._name, size))
        super().xTruncate(size)

    def xSync(self, flags: int) -> None:  # noqa: N802 - apsw's name
        if self._disk.failing_sync and self._name.endswith("-wal"):
            raise apsw.IOError
        self._disk.events.append(("sync", self._name))
        super().xSync(flags)
