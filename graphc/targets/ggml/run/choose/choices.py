"""Ways of computing calls that were measured to be the fastest on a device, in a file that people and C++ programs read too:

    conv_2d f32 3x3x128x3 512x512x128x1 stride 1x1 pad 1x1 dilation 1x1 = winograd  # winograd 155 ms, tiles 282 ms

Before the `=` stands what a choice depends on: the kind of call, the type of its weights, sizes in ggml's order. `graphc tune`
(`runtime/tuning.py`) measures; for calls that no line is about, fixed rules decide. `build.c` reads the lines.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from graphc.backends.precision import is_exact
from graphc.cache import alone, cache_folder, warn_once
from graphc.errors import GraphcError
from graphc.files import replacing
from graphc.ggml_library import ggml
from graphc.kernels.c.compiled import machine
from graphc.records import dataclass
from graphc.targets.ggml.run.choose.library import load_own
from graphc.targets.ggml.run.device.devices import backend_name

KEPT_IN = "ways"
"""The folder of the cache."""

SETTING = "GRAPHC_WAYS"
"""The environment variable that names a file to use instead of the device's, or is `none`."""


@dataclass(frozen=True)
class Store:
    """Where the choices of a device are kept, and what the device is, in words."""

    device: str
    path: Path


def kind_of(key: str) -> str:
    """The kind of call that a choice is for."""
    return key.partition(" ")[0]


def choices_for(backends: Sequence[Any], threads: int) -> bytes:
    """The lines of the ways that were chosen for these backends; none for several devices. Raises GraphcError if a file is named
    that is not there."""
    named = os.environ.get(SETTING, "")
    if named not in ("", "none") and not Path(named).is_file():
        raise GraphcError(f"{SETTING} names {named}, which is not a file")
    if named == "none" or len(backends) > 2:
        return b""
    if named:
        return read_choices(Path(named))
    try:
        store = store_for(backends, threads)
    except OSError:  # there is no cache
        return b""
    return read_choices(store.path) if store else b""


def read_choices(path: Path) -> bytes:
    """The lines of a file, of which those that are choices will count, with a warning if there are others."""
    try:
        text = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return b""
    except OSError as error:
        warn_once(f"{path} is ignored: {error}")
        return b""
    own = load_own()
    if own is not None and (line := own.wrong_choice(text)):
        warn_once(f"{path}: line {line} is not a choice between known ways, and is ignored")
    return text


def remember(path: Path, device: str, found: Mapping[str, str]) -> None:
    """Add lines to a file, or put them in the place of those that it has: what stands behind the `=` for each key. What other
    processes add meanwhile stays. Raises OSError."""
    own = load_own()
    with alone(KEPT_IN):
        before = read_choices(path).splitlines()
        kept = [line.decode(errors="replace") for line in before if own is None or not own.wrong_choice(line)]
        known = {line.partition("=")[0].strip(): line for line in kept if "=" in line.partition("#")[0]}
        lines = {**known, **{key: f"{key} = {text}" for key, text in found.items()}}
        text = "".join(f"{lines[key]}\n" for key in sorted(lines))
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
        device, depends = f"{description}, {threads} thread" + "s" * (threads > 1), (machine(), code, *rounding())
    else:
        code = ggml.ggml_version().decode() + ggml.ggml_commit().decode()
        device, depends = f"{name}, {description}", (code, str(is_exact()))
    if not code or len(backends) > 2 or name == "RPC":
        return None
    digest = hashlib.sha256("\0".join((device, *depends)).encode()).hexdigest()[:12]
    slug = re.sub(r"\W+", "-", device.lower()).strip("-")[:60]
    return Store(device, cache_folder(KEPT_IN) / f"{slug}-{digest}.txt")


def rounding() -> tuple[str, ...]:
    """What our own code rounds what it multiplies to; nothing where it does not."""
    own = load_own()
    return ("bfloat16",) if own is not None and own.multiplies_pairs and not is_exact() else ()


def own_code() -> str:
    """What the speed of our own code depends on besides the processor; empty where there is none."""
    own = load_own()
    return "" if own is None else "\0".join(own.origin)
