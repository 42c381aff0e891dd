"""What was measured of contractions on devices of generated kernels, in a file for each device that people can read and edit:

    f16 m8192 n320 k2880 t9 b1 by m128n64k64 w64x32 s3 z1 m16n8k16_half: 0.0000623

Of each product or convolution (`Sizes`), the schedule and the seconds. `graphc tune` measures. The fastest of those that were
measured is used; the lines also refit the coefficients of the device's roofline, from which other devices of its architecture
begin, as long as nothing was measured on them.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from graphc.backends.generated import device_features
from graphc.cache import alone, cache_folder, warn_once
from graphc.files import replacing
from graphc.ggml_library import ggml
from graphc.ir.types import F16, F32
from graphc.kernels.gpu.candidates import Sizes, terms_of
from graphc.kernels.gpu.devices import VULKAN, Gpu, gpu_like
from graphc.kernels.gpu.fitting import Sample, fitted
from graphc.kernels.gpu.forms import Form, form_of
from graphc.kernels.gpu.roofline import Coefficients, usual
from graphc.kernels.gpu.schedule import Schedule, ScheduleError, parsed
from graphc.kernels.gpu.scheduling import Scheduling

KEPT_IN = "schedules"
"""The folder of the cache."""

TEXTS = {
    False: (
        "skeletons/contraction.py",
        "render/cuda.py",
        "render/products.py",
        "render/together.py",
        "render/writer.py",
        "dialect/matrices.h",
        "dialect/wgmma.h",
    ),
    True: (
        "skeletons/contraction.py",
        *(f"render/spirv{part}.py" for part in ("", "_memory", "_matrices", "_together")),
    ),
}
"""What the speed of a contraction depends on besides the device and the schedule, by whether the device is Vulkan's: another text
makes measurements void."""

HEAD = re.compile(
    r"# (?P<description>.*), (?P<architecture>\w+), (?P<multiprocessors>\d+) multiprocessors; measured by graphc tune"
)
LINE = re.compile(
    r"(?P<type>f16|f32) m(?P<rows>\d{1,10}) n(?P<columns>\d{1,10}) k(?P<depth>\d{1,10}) t(?P<taps>\d{1,10}) b(?P<batch>\d{1,10})"
    r"(?P<paired> paired)?(?: of (?P<terms>[2-9]) terms)? by (?P<schedule>[^:]+): (?P<seconds>[\d.e+-]+)"
)
TYPES: dict[str, np.dtype] = {"f16": F16, "f32": F32}

Lines = dict[Sizes, dict[Schedule, float]]


@dataclass(frozen=True)
class Device:
    """A device of generated kernels: what its driver calls it, what it is expected to do, and where its measurements are kept;
    None where the user has no cache."""

    description: str
    gpu: Gpu
    path: Path | None

    @property
    def head(self) -> str:
        """The first line of the file."""
        gpu = self.gpu
        return (
            f"# {self.description}, {gpu.architecture}, {gpu.multiprocessors} multiprocessors; measured by graphc tune"
        )


def device_of(backend: Any) -> Device:
    """The device of a backend."""
    handle = ggml.ggml_backend_get_device(backend)
    description = ggml.ggml_backend_dev_description(handle).decode()
    form, said = form_for(handle), device_features(handle)
    count = int(said.get("MULTIPROCESSORS", 0))
    slug = re.sub(r"\W+", "-", description.lower()).strip("-")[:40]
    gpu = form.gpu(gpu_like(description, said.get("ARCHITECTURE", ""), count))
    try:
        return Device(description, gpu, cache_folder(KEPT_IN) / f"{slug}-{gpu.architecture}-{count}-{_texts(gpu)}.txt")
    except OSError:  # there is no cache
        return Device(description, gpu, None)


def form_for(device: Any) -> Form:
    """How kernels are written for a device, ggml's handle."""
    return form_of(ggml.ggml_backend_dev_name(device).decode(), device_features(device))


def scheduling_for(backend: Any) -> Scheduling | None:
    """The schedules for a backend's device, by what was measured there or on its relatives; None for one of fixed rules."""
    device = device_of(backend)
    if not form_for(ggml.ggml_backend_get_device(backend)).guesses:
        return None
    measured = read(device.path) if device.path is not None else {}
    return Scheduling(device.gpu, refitted(device, measured), measured)


def refitted(device: Device, measured: Mapping[Sizes, Mapping[Schedule, float]]) -> Coefficients:
    """The coefficients of a device: those that its relatives have, refitted by what was measured on it."""
    return fitted(_samples(measured, device.gpu), _inherited(device))


def _inherited(device: Device) -> Coefficients:
    """What is believed of a device before anything was measured on it: what is the middle among its relatives, which are devices
    of its architecture, or what is usual."""
    found = []
    relatives = f"*-{device.gpu.architecture}-*-{_texts(device.gpu)}.txt"
    for path in sorted(device.path.parent.glob(relatives)) if device.path is not None else ():
        if path == device.path or not (lines := read(path)):
            continue
        head = HEAD.match(path.read_text(encoding="utf-8", errors="replace"))
        if head is not None:
            relative = gpu_like(head["description"], head["architecture"], int(head["multiprocessors"]))
            found.append(fitted(_samples(lines, relative), usual(relative)))
    if not found:
        return usual(device.gpu)
    return Coefficients(
        *(float(np.median([getattr(each, term.name) for each in found])) for term in fields(Coefficients))
    )


def _samples(measured: Mapping[Sizes, Mapping[Schedule, float]], gpu: Gpu) -> list[Sample]:
    return [
        (terms_of(sizes, schedule, gpu), seconds)
        for sizes, times in measured.items()
        for schedule, seconds in times.items()
    ]


def read(path: Path) -> Lines:
    """The measurements of a file; none if it is not there. A line that is none does not count, with a warning. Raises OSError."""
    found: Lines = {}
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return found
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.startswith("#"):
            try:
                sizes, schedule, seconds = _measurement(line)
                found.setdefault(sizes, {})[schedule] = seconds
            except ScheduleError as error:
                warn_once(f"{path}: line {number} is no measurement, and does not count: {error}")
    return found


def _measurement(line: str) -> tuple[Sizes, Schedule, float]:
    """Raises ScheduleError for a line that is none."""
    match = LINE.fullmatch(line.strip())
    if match is None:
        raise ScheduleError(
            "one is written as 'f16 m8192 n320 k2880 t9 b1 by m128n64k64 w64x32 s3 z1 m16n8k16_half: 0.00006'"
        )
    try:
        seconds = float(match["seconds"])
    except ValueError:
        seconds = 0.0
    numbers = [int(match[name]) for name in ("rows", "columns", "depth", "taps", "batch")]
    if not 0 < seconds < float("inf") or min(numbers) < 1:
        raise ScheduleError("seconds and sizes are above 0")
    rows, columns, depth, taps, batch = numbers
    sizes = Sizes(
        TYPES[str(match["type"])], rows, columns, depth, taps, batch, match["paired"] is not None, int(match["terms"] or 1)
    )  # fmt: skip
    schedule = parsed(match["schedule"])
    if not sizes.take(schedule):
        raise ScheduleError(f"two products whose sums meet cannot have {schedule}")
    return sizes, schedule, seconds


def remember(device: Device, found: Mapping[Sizes, Mapping[Schedule, float]]) -> None:
    """Add measurements to a device's file, or put them in the place of those that it has. What other processes add meanwhile
    stays. Raises OSError."""
    if device.path is None:
        raise OSError("the user has no folder for a cache")
    with alone(KEPT_IN):
        lines = read(device.path)
        for sizes, times in found.items():
            lines.setdefault(sizes, {}).update(times)
        text = "".join(f"{line}\n" for line in sorted(_lines(lines)))
        with replacing(device.path) as unfinished:
            unfinished.write_text(f"{device.head}\n{text}", encoding="utf-8")


def _lines(found: Lines) -> Iterable[str]:
    for sizes, times in found.items():
        for schedule, seconds in times.items():
            yield f"{sizes} by {schedule}: {seconds:.4g}"


def _texts(gpu: Gpu) -> str:
    """A checksum of what kernels are made of."""
    folder, names = files("graphc.kernels.gpu"), TEXTS[gpu.architecture.startswith(VULKAN)]
    return hashlib.sha256(b"\0".join(folder.joinpath(*name.split("/")).read_bytes() for name in names)).hexdigest()[:8]
