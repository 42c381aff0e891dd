"""Ways of computing calls that were measured to be the fastest on a device, in a file that people and C++ programs read too:

    conv_2d f32 3x3x128x3 512x512x128x1 stride 1x1 pad 1x1 dilation 1x1 = winograd  # winograd 155 ms, tiles 282 ms

Before the `=` stands what a choice depends on: the kind of call, the type of its weights, sizes in ggml's order. `graphc tune`
(`runtime/tuning.py`) measures; for calls that no line is about, fixed rules decide. `choices.cpp` reads the same.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graphc.backends.precision import is_exact
from graphc.cache import cache_folder, make_cache_folder
from graphc.errors import GraphcError
from graphc.files import replacing
from graphc.ggml_library import ggml
from graphc.targets.ggml.devices import backend_name
from graphc.targets.ggml.products import FAST_FLAGS, source
from graphc.targets.kernels.compiled import machine
from graphc.targets.kernels.native import find_compiler
from graphc.trace import LOG

WAYS: Mapping[str, Sequence[str]] = {
    "conv_2d": ("winograd", "tiles", "direct", "columns"),
    "attention": ("flash", "scores"),
}
"""Kinds of calls, and the ways of computing them, of which each device has some: `replace.py` has the CPU's, `adapt.py` those of
others."""

KEPT_IN = "ways"
"""The folder of the cache."""

SETTING = "GRAPHC_WAYS"
"""The environment variable that names a file to use instead of the device's, or is `none`."""


@dataclass(frozen=True)
class Store:
    """Where the choices of a device are kept, and what the device is, in words."""

    device: str
    path: Path


def convolution_key(kernel: Any, image: Any, *settings: int) -> str:
    """What the choice for a convolution depends on, given ggml's arguments of it."""
    s0, s1, p0, p1, d0, d1 = settings
    return (
        f"conv_2d {type_name(kernel)} {sizes(kernel)} {sizes(image)} stride {s0}x{s1} pad {p0}x{p1} dilation {d0}x{d1}"
    )


def attention_key(k: Any, q: Any, v: Any, mask: Any) -> str:
    """What the choice for attention depends on; `v` has the keys along its rows."""
    return f"attention {type_name(k)} {sizes(k)} {sizes(q)} values {v.contents.ne[1]} mask {int(bool(mask))}"


def kind_of(key: str) -> str:
    """The kind of call that a choice is for."""
    return key.partition(" ")[0]


def type_name(tensor: Any) -> str:
    """ggml's name of a tensor's type."""
    return str(ggml.ggml_type_name(tensor.contents.type).decode())


def sizes(tensor: Any) -> str:
    """A tensor's sizes, in ggml's order."""
    return "x".join(map(str, tensor.contents.ne))


def choices_for(backends: Sequence[Any], threads: int) -> Mapping[str, str]:
    """The ways that were chosen for these backends, by what a choice depends on; none for several devices. Raises GraphcError if
    a file is named that is not there."""
    named = os.environ.get(SETTING, "")
    if named not in ("", "none") and not Path(named).is_file():
        raise GraphcError(f"{SETTING} names {named}, which is not a file")
    if named == "none" or len(backends) > 2:
        return {}
    if named:
        return chosen(Path(named))
    try:
        store = store_for(backends, threads)
    except OSError:  # there is no cache
        return {}
    return chosen(store.path) if store else {}


def chosen(path: Path) -> dict[str, str]:
    """The ways that a file names. What has no such way is left out, and a file with other lines is ignored, with a warning."""
    found = {}
    for key, text in _lines(path).items():
        way = text.partition("#")[0].strip()
        if way in WAYS[kind_of(key)]:
            found[key] = way
        else:
            _warn_once(f"{path}: {kind_of(key)} has no way {way!r}")
    return found


def remember(path: Path, device: str, found: Mapping[str, str]) -> None:
    """Add lines to a file, or put them in the place of those that it has: what stands behind the `=` for each key. What other
    processes add meanwhile stays. Raises OSError."""
    with _alone():
        lines = {**_lines(path), **found}
        text = "".join(f"{key} = {lines[key]}\n" for key in sorted(lines))
        with replacing(path) as unfinished:
            unfinished.write_text(f"# {device}; measured by graphc tune\n{text}", encoding="utf-8")


def store_for(backends: Sequence[Any], threads: int) -> Store | None:
    """Where the choices for these backends are kept; None for several devices, for one of another machine, and for the CPU
    without code of our own. Raises OSError where the user has no cache."""
    backend = backends[0]
    name = backend_name(backend)
    description = ggml.ggml_backend_dev_description(ggml.ggml_backend_get_device(backend)).decode()
    if len(backends) == 1:
        code = own_code()
        device, depends = f"{description}, {threads} thread" + "s" * (threads > 1), (machine(), code)
    else:
        code = ggml.ggml_version().decode() + ggml.ggml_commit().decode()
        device, depends = f"{name}, {description}", (code, str(is_exact()))
    if not code or len(backends) > 2 or name == "RPC":
        return None
    digest = hashlib.sha256("\0".join((device, *depends)).encode()).hexdigest()[:12]
    slug = re.sub(r"\W+", "-", device.lower()).strip("-")[:60]
    return Store(device, cache_folder(KEPT_IN) / f"{slug}-{digest}.txt")


@functools.cache
def own_code() -> str:
    """What the speed of our own code depends on besides the processor; empty without a C compiler."""
    compiler = find_compiler()
    return "" if compiler is None else "\0".join((source(), *compiler, *FAST_FLAGS))


def _lines(path: Path) -> dict[str, str]:
    """What stands before and behind the `=` of each line; nothing, with a warning, of a damaged file."""
    found = {}
    try:
        for line in path.read_text(encoding="utf-8").splitlines():
            key, equals, text = (part.strip() for part in line.partition("="))
            if not line.strip() or line.startswith("#"):
                continue
            if not equals or not text or kind_of(key) not in WAYS:
                raise ValueError(f"{line[:80]!r} is not a choice")
            found[key] = text
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        _warn_once(f"{path} is ignored: {error}")
        return {}
    return found


@functools.cache
def _warn_once(message: str) -> None:
    LOG.warning(message)


@contextmanager
def _alone() -> Iterator[None]:
    """No other process is in such a block at the same time. The system opens the lock if a process ends."""
    with (make_cache_folder(KEPT_IN) / "lock").open("ab") as file:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(file.fileno(), msvcrt.LK_LOCK, 1)
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX)
        yield
