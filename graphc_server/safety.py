"""What stands before every request: who may ask, from which page, under which name of this server, and how much."""

from __future__ import annotations

import base64
import binascii
import ipaddress
from collections.abc import Mapping
from hmac import compare_digest
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from graphc_server.answers import error

LOOPBACK = "localhost"
OPEN = ("/health",)
"""What is answered without a password: it says nothing but that the server is there."""


class Guard:
    """ASGI middleware that refuses, in this order: an unknown Host (403), a page of another host (403), no or a wrong password
    (401), a body that is too large (413).

    The check of the Host stops pages whose name was made to mean this machine (DNS rebinding): browsers send the page's name. An
    address is not a name, and passes.
    """

    def __init__(
        self, app: ASGIApp, hosts: tuple[str, ...], origins: tuple[str, ...], users: Mapping[str, str], body: int
    ) -> None:
        self.app, self.origins, self.users, self.body = app, origins, users, body
        self.hosts = {LOOPBACK, *(host.lower() for host in hosts)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, or one WebSocket."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        refusal = self._refusal(scope, Headers(scope=scope))
        if refusal is not None and _can_answer(scope):
            await refusal(scope, receive, send)
        elif refusal is not None:
            await send({"type": "websocket.close", "code": 1008})
        elif scope["type"] == "websocket":
            await self.app(scope, receive, send)
        else:
            counted = Counted(receive, send, self.body)
            await self.app(scope, counted.receive, counted.send)

    def _refusal(self, scope: Scope, headers: Headers) -> Any:
        host = _host(headers.get("host", ""))
        by_socket = (scope.get("server") or ("", 0))[1] is None
        if not (by_socket or "*" in self.hosts or host in self.hosts or _is_address(host)):
            return error("HTTPException", f"the server does not answer as {host[:80]!r}; see --allow-host", 403)
        origin = headers.get("origin")
        if origin is not None and not self._allowed(origin, headers.get("host", "")):
            return error("HTTPException", "requests from pages of other hosts are not allowed; see --cors", 403)
        if self.users and scope.get("method") != "OPTIONS" and scope["path"] not in OPEN:
            name = self._user(headers.get("authorization", ""))
            if name is None:
                asks = {"WWW-Authenticate": 'Basic realm="graphc"'}
                return error("HTTPException", "Incorrect username or password", 401, asks)
            scope["user_name"] = name
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length[:20]) > self.body:
            return too_large(self.body)
        return None

    def _allowed(self, origin: str, host: str) -> bool:
        return "*" in self.origins or origin in self.origins or urlsplit(origin).netloc.lower() == host.lower()

    def _user(self, header: str) -> str | None:
        """The name, if the password is right. Every known one is compared, each in constant time."""
        kind, _, text = header.partition(" ")
        if kind.lower() == "bearer":
            return next((name for name, password in self.users.items() if _same(text, password)), None)
        try:
            given, _, secret = base64.b64decode(text, validate=True).decode("utf-8").partition(":")
        except (binascii.Error, ValueError):
            return None
        found = None
        for name, password in self.users.items():
            if _same(given, name) & _same(secret, password):
                found = name
        return found if kind.lower() == "basic" else None


def _can_answer(scope: Scope) -> bool:
    """True if there can be a response: always for HTTP; for a WebSocket that is not accepted, if the server knows how."""
    return scope["type"] == "http" or "websocket.http.response" in scope.get("extensions", {})


def _same(one: str, other: str) -> bool:
    return compare_digest(one.encode("utf-8", "surrogatepass"), other.encode("utf-8", "surrogatepass"))


def _host(header: str) -> str:
    """Without the port, in small letters."""
    name = header.lower().strip()
    head, colon, port = name.rpartition(":")
    return head if colon and port.isdecimal() and (head.endswith("]") or ":" not in head) else name


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True


def too_large(most: int) -> Any:
    """The answer to a body that is too large."""
    return error("HTTPException", f"body: the server allows {most} bytes", 413)


class Counted:
    """A body whose bytes are counted, for those that do not say how long they are."""

    def __init__(self, receive: Receive, send: Send, most: int) -> None:
        self._receive, self._send, self._left = receive, send, most
        self._began = self._refused = False
        self._most = most

    async def receive(self) -> Message:
        """The next piece; what is too much ends the request as if the client had gone."""
        message = await self._receive()
        self._left -= len(message.get("body", b""))
        if self._left < 0:
            self._refused = True
            return {"type": "http.disconnect"}
        return message

    async def send(self, message: Message) -> None:
        """The answer, or that it was too much."""
        if self._refused and not self._began:
            self._began = True
            answer = too_large(self._most)
            await self._send({"type": "http.response.start", "status": 413, "headers": answer.raw_headers})
            await self._send({"type": "http.response.body", "body": answer.body})
        elif not self._refused:
            self._began = True
            await self._send(message)
