"""Pictures from addresses on the web: only where it is allowed, and never from this network.

A name is looked up once; all its addresses must be public, and the connection goes to the one that was looked at: a name that
means another address a moment later (DNS rebinding) gains nothing. Each redirect is looked at in the same way.
"""

from __future__ import annotations

import http.client
import ipaddress
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import SplitResult, urljoin, urlsplit

from graphc_server.errors import RequestError

PORTS = {"http": 80, "https": 443}
REDIRECTS = (301, 302, 303, 307, 308)


def addresses_of(host: str, port: int) -> list[str]:
    """The addresses that a name stands for. Raises OSError."""
    return [str(found[4][0]) for found in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]


def public(address: str) -> bool:
    """True if an address is that of one machine on the internet."""
    found = ipaddress.ip_address(address.partition("%")[0])
    inner = getattr(found, "ipv4_mapped", None) or found
    return bool(inner.is_global and not inner.is_multicast)


@dataclass(frozen=True)
class Fetching:
    """What may be fetched."""

    allowed: bool = False
    private: bool = False
    """True if addresses of this machine and its network are allowed."""
    longest: int = 32 << 20
    """Bytes."""
    seconds: float = 20.0
    redirects: int = 3
    look_up: Callable[[str, int], list[str]] = addresses_of

    def fetch(self, url: str) -> bytes:
        """What lies there. Raises RequestError."""
        if not self.allowed:
            raise RequestError("Requests not allowed: start the server with --fetch to have it fetch pictures")
        for _ in range(self.redirects + 1):
            found = self._get(url)
            if isinstance(found, bytes):
                return found
            url = found
        raise RequestError(f"Invalid image url: it redirects more than {self.redirects} times")

    def _get(self, url: str) -> bytes | str:
        """The content, or the address of a redirect."""
        try:
            parts = urlsplit(url)
            port = parts.port or PORTS.get(parts.scheme, 0)
        except ValueError:
            raise RequestError("Invalid image url") from None
        if parts.scheme not in PORTS or not parts.hostname or parts.username is not None:
            raise RequestError("Invalid image url: it is not a plain http or https address")
        connection = self._connection(parts, parts.hostname, port)
        try:
            path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            connection.request("GET", path, headers={"Host": parts.netloc, "User-Agent": "graphc"})
            answer = connection.getresponse()
            if answer.status in REDIRECTS:
                return urljoin(url, answer.headers.get("Location", ""))
            if answer.status != 200:
                raise RequestError(f"Invalid image url: it answers {answer.status}")
            content = answer.read(self.longest + 1)
        except (OSError, http.client.HTTPException, ValueError) as problem:
            raise RequestError(f"Invalid image url: {problem}") from None
        finally:
            connection.close()
        if len(content) > self.longest:
            raise RequestError(f"Invalid image url: there are more than {self.longest} bytes")
        return content

    def _connection(self, parts: SplitResult, host: str, port: int) -> http.client.HTTPConnection:
        """A connection to an address that was looked at."""
        try:
            addresses = self.look_up(host, port)
        except (OSError, UnicodeError):
            addresses = []
        if not addresses:
            raise RequestError(f"Invalid image url: there is no {host}")
        if not self.private and not all(map(public, addresses)):
            raise RequestError("Request to local resource not allowed")
        try:
            reached = socket.create_connection((addresses[0], port), timeout=self.seconds)
            if parts.scheme == "https":
                reached = ssl.create_default_context().wrap_socket(reached, server_hostname=host)
        except OSError as problem:
            raise RequestError(f"Invalid image url: {problem}") from None
        connection = http.client.HTTPConnection(host, port, timeout=self.seconds)
        connection.sock = reached
        return connection
