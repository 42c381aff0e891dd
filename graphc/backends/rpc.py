"""Devices of other processes and machines, through ggml's RPC backend: connecting to a server, and being one.

ggml's protocol has neither passwords nor encryption, and its server trusts what it is sent: it is for trusted networks only.
"""

from __future__ import annotations

import ctypes
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from time import sleep
from typing import TYPE_CHECKING, Any, TypeVar

from graphc.backends.guard import ServerLost, guarded
from graphc.errors import GraphcError
from graphc.ggml_library import ggml
from graphc.records import dataclass

if TYPE_CHECKING:
    import socket

Result = TypeVar("Result")

SCHEME = "rpc://"
PORT = 50052

PROTOCOL = (4, 0, 1)
"""Version of the protocol. Source: ggml-rpc.h of the ggml that graphc is built on."""

HELLO = 14
CAPABILITIES = 24
"""The first command, and the bytes in it that say what else than TCP a side can. Source: ggml-rpc.cpp."""

CONNECT_SECONDS = 5.0

HELD_BYTES = 64

_in_use: Counter[Address] = Counter()
"""How many models of this process use a server."""

_lost: set[Address] = set()


@dataclass(frozen=True)
class Address:
    """Where a server listens. `host` is a name or an IPv4 address."""

    host: str
    port: int = PORT

    @staticmethod
    def parse(text: str) -> Address:
        """Read rpc://HOST:PORT or rpc://HOST. Raises GraphcError."""
        host, colon, port = text.removeprefix(SCHEME).partition(":")
        number = int(port) if port.isascii() and port.isdigit() and len(port) <= 5 else 0
        plain = host.isascii() and host.replace("-", "").replace(".", "").replace("_", "").isalnum()
        if not plain or (colon and not 0 < number < 1 << 16):
            raise GraphcError(f"{text!r} is no address of a server; write {SCHEME}HOST:PORT")
        return Address(host, number or PORT)

    def __str__(self) -> str:
        return f"{SCHEME}{self.host}:{self.port}"

    @property
    def endpoint(self) -> bytes:
        """The address as ggml writes it: HOST:PORT."""
        return f"{self.host}:{self.port}".encode()


def is_address(device: str) -> bool:
    """True if a device is a server's."""
    return device.lower().startswith(SCHEME)


def connect(address: Address) -> list[Any]:
    """The devices of a server, as ggml's handles. Raises GraphcError if it is not there, busy, or of another version."""
    if address in _lost:  # ggml has the connection still
        raise GraphcError(f"the connection to {address} was lost; only a new process can connect to it again")
    if _in_use[address] <= 0:
        greet(address)
    add = _function(b"ggml_backend_rpc_add_server", ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_char_p))
    registry = add(address.endpoint)
    if not registry:
        raise GraphcError(f"{address}: ggml could not connect")
    count = ggml.ggml_backend_reg_dev_count(registry)
    return [ggml.ggml_backend_reg_dev_get(registry, index) for index in range(count)]


def greet(address: Address) -> None:
    """Say hello as ggml would, which has no time limit and ends the process if it is not understood. Raises GraphcError."""
    import socket  # a program that runs on no server starts without it

    try:
        with socket.create_connection((address.host, address.port), CONNECT_SECONDS) as connection:
            connection.settimeout(CONNECT_SECONDS)
            connection.sendall(struct.pack("<BQ", HELLO, CAPABILITIES) + bytes(CAPABILITIES))
            answer = _received(connection, 8)
            version = tuple(_received(connection, 3)) if answer else b""
    except TimeoutError as error:
        raise GraphcError(
            f"{address} does not answer: the server hangs, or serves another program (it has one at a time)"
        ) from error
    except OSError as error:
        raise GraphcError(f"{address} cannot be reached: {error.strerror or error}") from error
    if version != PROTOCOL:
        told = ".".join(map(str, version)) if version else "something else"
        raise GraphcError(f"{address} speaks {told}, not version {'.'.join(map(str, PROTOCOL))} of ggml's RPC protocol")


def _received(connection: socket.socket, count: int) -> bytes:
    """So many bytes; fewer if the other side closes."""
    data = b""
    while len(data) < count and (more := connection.recv(count - len(data))):
        data += more
    return data if len(data) == count else b""


class Servers:
    """The servers that a model computes on. What is done with them is done in `call`, so that losing one is an error.

    ggml has one connection to a server, as long as it has memory there; where there is none it connects anew, and does not look
    whether it can. So a model has some bytes on each server while it lives.
    """

    def __init__(self, devices: Sequence[str]) -> None:
        self.addresses = [Address.parse(each) for each in devices if is_address(each)]
        self.lost = ""
        self._held: list[Any] = []

    def hold(self, backends: Iterable[Any]) -> None:
        """Keep the connections, once the servers' devices are opened. Raises GraphcError."""
        _in_use.update(self.addresses)
        for backend in backends:
            device = ggml.ggml_backend_get_device(backend)
            if ggml.ggml_backend_reg_name(ggml.ggml_backend_dev_backend_reg(device)) == b"RPC":
                kind = ggml.ggml_backend_get_default_buffer_type(backend)
                buffer = kind and ggml.ggml_backend_buft_alloc_buffer(kind, HELD_BYTES)
                if not buffer:
                    raise GraphcError(f"{ggml.ggml_backend_name(backend).decode()} has no memory left")
                self._held.append(buffer)

    def release(self) -> None:
        """Let the connections go, when nothing else of the model is on the servers."""
        for buffer in self._held:
            ggml.ggml_backend_buffer_free(buffer)
        self._held.clear()
        _in_use.subtract(self.addresses)

    def call(self, function: Callable[[], Result]) -> Result:
        """What the function returns or raises. Raises ServerLost if a server is lost, and from then on."""
        if not self.addresses:
            return function()
        if self.lost:
            raise ServerLost(self.lost)
        try:
            return guarded(function)
        except ServerLost as error:
            self.lost = self._description(error)
            raise ServerLost(self.lost) from error

    def _description(self, error: ServerLost) -> str:
        """What a person reads: which server is lost, if that can be told, and why."""
        gone = _ended(self.addresses)
        _lost.update(gone or self.addresses)
        which = " or ".join(map(str, gone or self.addresses))
        return f"lost the server {which}: {'it ended' if gone else error}; the model cannot be used any more"


def _ended(addresses: Sequence[Address]) -> list[Address]:
    """Those where nobody listens. Of a process that ends, connections may close a moment before its port does."""
    for pause in (0.0, 0.1, 0.4):
        sleep(pause)
        if gone := [each for each in addresses if not _listens(each)]:
            return gone
    return []


def _listens(address: Address) -> bool:
    import socket

    try:
        socket.create_connection((address.host, address.port), 1.0).close()
    except TimeoutError:  # it hangs, and its queue is full
        return True
    except OSError:
        return False
    return True


def serve(handle: Any, host: str, port: int, threads: int) -> None:
    """Serve a device until the process is interrupted, to one program at a time. Raises GraphcError."""
    import signal

    start = _function(
        b"ggml_backend_rpc_start_server",
        ctypes.CFUNCTYPE(
            None, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.POINTER(ctypes.c_void_p)
        ),
    )
    for number in (signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)  # Python would notice it only when ggml's loop has ended
    start(f"{host}:{port}".encode(), None, threads, 1, (ctypes.c_void_p * 1)(handle))
    raise GraphcError(f"ggml could not serve on {host}:{port}")


def is_loopback(host: str) -> bool:
    """True if only this machine can reach an address. Raises GraphcError for what is no IPv4 address."""
    import ipaddress

    try:
        return ipaddress.IPv4Address(host).is_loopback
    except ValueError as error:
        raise GraphcError(f"--host {host}: must be an IPv4 address, such as 127.0.0.1 or 0.0.0.0") from error


def check_free(host: str, port: int) -> None:
    """Raises GraphcError unless a server can listen there."""
    import socket

    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind((host, port))
        except OSError as error:
            raise GraphcError(f"cannot listen on {host}:{port}: {error.strerror or error}") from error


def _function(name: bytes, kind: Any) -> Any:
    """A function of the backend's library. Raises GraphcError if the backend is not installed."""
    registry = ggml.ggml_backend_reg_by_name(b"RPC")
    found = ggml.ggml_backend_reg_get_proc_address(registry, name) if registry else None
    if not found:
        raise GraphcError("devices of other processes need ggml's RPC backend: `graphc backend install rpc` builds it")
    return kind(found)
