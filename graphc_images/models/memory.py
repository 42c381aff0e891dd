"""Engines that are loaded when they are needed, and freed when another, or what one computes, would not fit."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

import graphc
from graphc_images.errors import ModelError

Memory = int | str | Sequence[int | str | None] | None
"""Bytes, or a text like "4GiB"; one for each of several devices, which a text may have commas between. "auto" and None stand for
what is free."""

LEFT = 1 / 16
"""The part of a device's free memory that is left to others, where no limit is given."""


WORTH_PAGING = 64 << 20
"""The least bytes of an engine that are given back between its runs. A gigabyte takes about a tenth of a second to come back."""


class TooLarge(ModelError):
    """A run needs more memory than there may be, with nothing else loaded. Nothing was computed: a smaller one may do."""


class Loaded:
    """Engines by key, with one limit for their weights and what they compute, all together.

    `limit` is that of the `device` on which they are. Without one, other devices than the CPU have what is free on them; on the
    CPU nothing is freed, and a run is too large if the machine does not have so much memory available.
    """

    def __init__(self, limit: Memory = None, device: str = "cpu") -> None:
        self.device, self.given = device.strip().lower(), limit
        self.limit = limit_of(limit, self.device)
        if self.device == "cpu" and self.limit is not None:
            graphc.limit_rounded_weights(0)  # they would lie beside those that count
        self._models: OrderedDict[object, graphc.Model] = OrderedDict()
        self._largest: dict[object, int] = {}

    @property
    def nbytes(self) -> int:
        """Bytes of all that is loaded: weights, whether they are mapped or copied, and what is reserved for results."""
        return sum(map(held_by, self._models.values()))

    @property
    def streams(self) -> bool:
        """True if an engine may be larger than the limit, because its weights are copied to the device when they are read."""
        return self.device != "cpu"

    def get(self, key: object, size: int, load: Callable[[], graphc.Model], copied: int = 0) -> graphc.Model:
        """The engine of a key, loaded if it is not; its weights take about `size` bytes, of which so many are `copied` where they
        are not mapped as the file has them. Raises TooLarge."""
        if (engine := self.used(key)) is not None:
            return engine
        if self.limit is not None:
            if size > self.limit and not self.streams:
                raise TooLarge(f"its weights alone take {mib(size)}, and memory is limited to {mib(self.limit)}")
            self._make_room(size, key)
        elif self.device == "cpu" and copied > (there := available()):
            raise TooLarge(
                f"its floats of 8 bits take {mib(copied)} as float16, and {mib(int(there))} of memory are available; with "
                "--type q8_0 (types=) they take about half"
            )
        self._models[key] = load()
        return self._models[key]

    def run(self, key: object, feed: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Run an engine that is loaded; others are freed if there is no room for what it computes. Raises TooLarge."""
        engine = self._models[key]
        self._models.move_to_end(key)
        needed = engine.bytes_for({name: np.shape(array) for name, array in feed.items()})
        if self.limit is not None:
            if engine.weight_bytes + needed > self.limit and not self.streams:
                raise TooLarge(
                    f"weights take {mib(engine.weight_bytes)} and what is computed at once {mib(needed)}, and memory is limited "
                    f"to {mib(self.limit)}"
                )
            if needed < engine.reserved_bytes and self.nbytes > self.limit:
                engine.release()
            self._make_room(engine.weight_bytes + max(needed, engine.reserved_bytes), key)
        elif needed > self._largest.get(key, 0) or not engine.reserved_bytes:  # asking the system takes its time
            there = available()
            if needed - engine.reserved_bytes > there:
                raise TooLarge(
                    f"what is computed at once takes {mib(needed)}, and {mib(int(there))} of memory are available"
                )
        if needed > self._largest.get(key, 0):  # not what is reserved anew: engines would page each other out
            self._largest[key] = needed
            self._page_out(key)
        try:
            return engine(feed)
        except graphc.GraphcError as error:
            if self.limit is not None and self.streams and engine.weight_bytes + needed > self.limit:
                raise TooLarge(str(error)) from error  # graphc says what it would take
            raise

    def used(self, key: object) -> graphc.Model | None:
        """The engine of a key if it is loaded, which then was used last."""
        if key in self._models:
            self._models.move_to_end(key)
        return self._models.get(key)

    def there(self, key: object) -> graphc.Model | None:
        """The engine of a key if it is loaded."""
        return self._models.get(key)

    def free(self, key: object) -> None:
        """Close the engine of a key, if it is loaded."""
        if key in self._models:
            self._largest.pop(key, None)
            self._models.pop(key).close()

    def clear(self) -> None:
        """Close all."""
        for key in list(self._models):
            self.free(key)

    def _make_room(self, size: int, key: object) -> None:
        """Have others take no more than the limit leaves beside `size` bytes for this one: what they reserved for results goes
        first, then the engines that were not used for longest."""
        assert self.limit is not None
        others = [other for other in self._models if other != key]
        for give in (self._release, self.free):
            for other in others:
                if sum(held_by(self._models[each]) for each in others if each in self._models) + size <= self.limit:
                    return
                give(other)

    @contextmanager
    def alone(self, key: object) -> Iterator[None]:
        """For an engine that runs once for a picture, and needs more than others while it does: the memory of the others may go
        before the block, and its own after it. It comes back when they run again."""
        self._page_out(key)
        try:
            yield
        finally:
            if key in self._models:
                page_out(self._models[key])

    def _page_out(self, key: object) -> None:
        """Let the system have the memory of the other engines, until they run again."""
        for other, engine in self._models.items():
            if other != key:
                page_out(engine)

    def _release(self, key: object) -> None:
        self._models[key].release()


def page_out(engine: graphc.Model) -> None:
    """Let the system have an engine's memory until it runs again, where that is worth the time in which it comes back."""
    if held_by(engine) >= WORTH_PAGING:
        engine.page_out()


def held_by(engine: graphc.Model) -> int:
    """Bytes that an engine has."""
    return engine.weight_bytes + engine.reserved_bytes


def limit_of(memory: Memory, device: str) -> int | None:
    """The bytes that may be used; None where nothing says how many. Raises graphc.InputError for what is not a size."""
    sizes = graphc.memory_limits(memory)
    if sizes and None not in sizes:
        return sum(size for size in sizes if size is not None)
    if device == "cpu":
        return None
    names = [each.strip().lower() for each in device.split(",")]
    free = {each.name.lower(): each.memory_free for each in graphc.devices()}
    found = [int((free.get(name) or free.get(f"{name}0", 0)) * (1 - LEFT)) for name in names if name != "cpu"]
    return sum(found) if all(found) else None


def available(path: Path = Path("/proc/meminfo")) -> float:
    """Bytes of the machine's memory that are available, as far as it says."""
    try:
        lines = [line.split() for line in path.read_text().splitlines()]
    except OSError:
        return float("inf")
    sizes = {name: int(size) << 10 for name, size, *_ in lines}
    return sizes.get("MemAvailable:", float("inf")) + sizes.get("SwapFree:", 0)


def mib(count: int) -> str:
    """Bytes as a person reads them."""
    return f"{count / 2**20:.1f} MiB"
