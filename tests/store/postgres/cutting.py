"""A proxy in front of a server that cuts a connection at a chosen request: before the server has it, or its answer."""

from __future__ import annotations

import contextlib
import shutil
import socket
import struct
import tempfile
import threading
from pathlib import Path
from typing import Final, Literal, Self
from urllib.parse import quote

_PORT: Final = 5432
_ENDS_A_REQUEST: Final = b"QS"
"""A simple query, or the end of an extended one."""


class CuttingProxy:
    """Passes everything on until told to cut.

    Args:
        folder: where the server's socket is.
    """

    def __init__(self, folder: Path) -> None:
        self._server = f"{folder}/.s.PGSQL.{_PORT}"
        self.folder = Path(tempfile.mkdtemp(prefix="keel-cut-"))
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(f"{self.folder}/.s.PGSQL.{_PORT}")
        self._socket.listen(64)
        self._lock = threading.Lock()
        self._left: int | None = None
        self._side: Literal["request", "answer"] = "request"
        self.was_cut = False
        threading.Thread(target=self._accept, daemon=True).start()

    def through(self, address: str, folder: Path) -> str:
        """An address of the server, by way of the proxy."""
        return address.replace(quote(str(folder), safe=""), quote(str(self.folder), safe=""), 1)

    def cut(self, at: int, side: Literal["request", "answer"]) -> None:
        """Cut at the at-th request from now on: let the server not have it, or the client not its answer."""
        with self._lock:
            self._left, self._side, self.was_cut = at, side, False

    def heal(self) -> None:
        """Pass everything on."""
        with self._lock:
            self._left = None

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._socket.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX)
            server.connect(self._server)
            _Passage(self, client, server).start()

    def falls(self) -> Literal["request", "answer"] | None:
        """Whether this request is the one, and which side of it is cut."""
        with self._lock:
            if self._left is None:
                return None
            self._left -= 1
            if self._left:
                return None
            self._left, self.was_cut = None, True
            return self._side

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        shutil.rmtree(self.folder)


class _Passage:
    """One connection: what the client says is read message by message, so that a request is known by its end."""

    def __init__(self, proxy: CuttingProxy, client: socket.socket, server: socket.socket) -> None:
        self._proxy = proxy
        self._client = client
        self._server = server
        self._is_mute = False

    def start(self) -> None:
        threading.Thread(target=self._ask, daemon=True).start()
        threading.Thread(target=self._answer, daemon=True).start()

    def _ask(self) -> None:
        with contextlib.suppress(OSError, EOFError):
            self._server.sendall(self._startup())
            while True:
                head = self._exactly(5)
                message = head + self._exactly(struct.unpack("!I", head[1:])[0] - 4)
                cut = self._proxy.falls() if head[:1] in _ENDS_A_REQUEST else None
                if cut == "request":
                    break
                self._is_mute = cut == "answer"
                self._server.sendall(message)
                if self._is_mute:
                    # The server has done it once it has answered.
                    return
        self._close()

    def _answer(self) -> None:
        with contextlib.suppress(OSError):
            while data := self._server.recv(65536):
                if self._is_mute:
                    break
                self._client.sendall(data)
        self._close()

    def _startup(self) -> bytes:
        while True:
            head = self._exactly(8)
            length, code = struct.unpack("!II", head)
            message = head + self._exactly(length - 8)
            if code not in (80877103, 80877104):
                return message
            # Neither TLS nor GSS on this side.
            self._client.sendall(b"N")

    def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            more = self._client.recv(count - len(data))
            if not more:
                raise EOFError
            data += more
        return data

    def _close(self) -> None:
        for end in (self._client, self._server):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
