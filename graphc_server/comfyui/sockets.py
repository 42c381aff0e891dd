"""Who listens over a WebSocket, by the name that a client gave itself, and what each is still to be sent."""

from __future__ import annotations

import asyncio
import contextlib
import json
import struct
import uuid
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

PREVIEW, PREVIEW_SAID = 1, 4
"""Kinds of binary messages: a preview, and one with what it is of."""
JPEG, PNG = 1, 2
MOST = 2048
"""Messages that may wait for a client that does not take them; then its connection is ended."""

Message = str | bytes


def text_message(kind: str, data: Mapping[str, Any]) -> str:
    """An event."""
    return json.dumps({"type": kind, "data": data})


def preview_message(picture: bytes) -> bytes:
    """A preview, a JPEG file."""
    return struct.pack(">II", PREVIEW, JPEG) + picture


def picture_message(picture: bytes) -> bytes:
    """A finished picture, a PNG or JPEG file."""
    return struct.pack(">II", PREVIEW, PNG if picture.startswith(b"\x89PNG") else JPEG) + picture


def said_preview_message(picture: bytes, said: Mapping[str, Any]) -> bytes:
    """The same with what it is of."""
    text = json.dumps({**said, "image_type": "image/jpeg"}).encode()
    return struct.pack(">II", PREVIEW_SAID, len(text)) + text + picture


class Socket:
    """A connection, of an event loop."""

    def __init__(self, client: str) -> None:
        self.client, self.features = client, dict[str, Any]()
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[Message | None] = deque()
        self._something = asyncio.Event()

    def send(self, message: Message | None) -> None:
        """Have a message sent, from any thread; None ends the connection."""
        with contextlib.suppress(RuntimeError):  # the loop is closed, and so is the connection
            self._loop.call_soon_threadsafe(self._put, message)

    def _put(self, message: Message | None) -> None:
        if len(self._waiting) < MOST:
            self._waiting.append(message)
        else:
            self._waiting = deque([None])
        self._something.set()

    async def next(self) -> Message | None:
        """The next message, waited for."""
        while not self._waiting:
            self._something.clear()
            await self._something.wait()
        return self._waiting.popleft()


class Sockets:
    """All connections. A client that comes again under its name takes the place of its earlier connection."""

    def __init__(self) -> None:
        self._open: dict[str, Socket] = {}

    def open(self, client: str | None) -> Socket:
        """A new connection; a client without a name gets one."""
        socket = Socket(client or uuid.uuid4().hex)
        self._open[socket.client] = socket
        return socket

    def close(self, socket: Socket) -> None:
        """A connection has ended."""
        if self._open.get(socket.client) is socket:
            del self._open[socket.client]

    def tell(self, kind: str, data: Mapping[str, Any], client: str | None = None) -> None:
        """Send an event, to one client or to all; from any thread."""
        message = text_message(kind, data)
        for socket in list(self._open.values()) if client is None else self._of(client):
            socket.send(message)

    def send(self, message: Message, client: str) -> None:
        """Send something to a client."""
        for socket in self._of(client):
            socket.send(message)

    def listens(self, client: str | None) -> bool:
        """True if a client has a connection."""
        return client in self._open

    def preview(self, picture: Callable[[], bytes], said: Mapping[str, Any], client: str) -> None:
        """Send a preview, made if the client listens; with what it is of, to those who said that they know such."""
        for socket in self._of(client):
            plain = not socket.features.get("supports_preview_metadata")
            socket.send(preview_message(picture()) if plain else said_preview_message(picture(), said))

    def end(self) -> None:
        """End all connections."""
        for socket in list(self._open.values()):
            socket.send(None)

    def _of(self, client: str) -> list[Socket]:
        found = self._open.get(client)
        return [] if found is None else [found]
