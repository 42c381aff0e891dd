"""Files of models that become shorter while they are used, as `cp` over one makes them: their weights are mapped, and the system
ends a process that reads what is no longer there (SIGBUS).

Here zeros come in its place, so that the run at hand comes to its end, and the file is noted: what was made of it is worth
nothing. On Linux; elsewhere, and for addresses that are in no mapped file, all is as ever.
"""

from __future__ import annotations

import ctypes
import mmap
import signal
import sys
from collections.abc import Iterator

from graphc_images import ModelError

SA_SIGINFO, SA_ONSTACK, MAP_FIXED = 4, 0x08000000, 0x10
ADDRESS = 16
"""Where in what the system says of a signal the address stands (siginfo_t of 64 bits)."""

HANDLER = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)


class Action(ctypes.Structure):
    """`struct sigaction` of Linux' C libraries."""

    _fields_ = (
        ("handler", HANDLER),
        ("mask", ctypes.c_ulong * (128 // ctypes.sizeof(ctypes.c_ulong))),
        ("flags", ctypes.c_int),
        ("restorer", ctypes.c_void_p),
    )


_gone: dict[str, None] = {}
"""The files that were found to be cut off, until somebody asked."""

_kept: list[object] = []
"""What the system calls, which must stay."""


def guard() -> None:
    """Have this process go on when a mapped file becomes shorter; `check` says so then."""
    if sys.platform != "linux" or ctypes.sizeof(ctypes.c_void_p) != 8 or _kept:
        return
    system = ctypes.CDLL(None, use_errno=True)
    system.mmap.restype = ctypes.c_void_p
    system.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long)

    def read_what_is_gone(number: int, said: int, context: int) -> None:
        address = ctypes.c_size_t.from_address(said + ADDRESS).value
        for start, end, writable, path in mapped():
            if start <= address < end and path.startswith("/"):
                page = address // mmap.PAGESIZE * mmap.PAGESIZE
                access = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
                flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_FIXED
                if system.mmap(page, end - page, access, flags, -1, 0) == page:
                    _gone[path] = None
                    return
        signal.signal(number, signal.SIG_DFL)  # it is read again, and the process ends

    action = Action(HANDLER(read_what_is_gone), flags=SA_SIGINFO | SA_ONSTACK)
    if system.sigaction(signal.SIGBUS, ctypes.byref(action), None) == 0:
        _kept.append(action)


def mapped() -> Iterator[tuple[int, int, bool, str]]:
    """What of this process is mapped: from and to which address, whether it can be written, and of which file."""
    with open("/proc/self/maps") as lines:
        for line in lines:
            part, access, _, _, _, *path = line.rstrip("\n").split(maxsplit=5)
            start, end = (int(each, 16) for each in part.split("-"))
            yield start, end, "w" in access, (path or [""])[0].removesuffix(" (deleted)")


def check() -> None:
    """Raises ModelError if a file was cut off since this was last asked."""
    if not _gone:
        return
    names = ", ".join(_gone)
    _gone.clear()
    raise ModelError(f"{names}: it became shorter while it was used; when it is whole again, it is read anew")
