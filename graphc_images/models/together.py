"""Several paintings at a time, whose evaluations of a model go through it in one batch where they fit together.

Each painting has a thread, but one of them runs at a time: until it wants a model evaluated, or ends. When all that are left want
that, those evaluations that are alike are made at once. A row of a batch has the bits that it has alone, so that nobody sees
whether there were others.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from graphc_images.models.denoisers import Conditioning
from graphc_images.sampling.guided import Weakening

ROOM = 2 * 64 * 64
"""Latent pixels up to which a processor gains by a batch: small images' kernels are read and transformed once."""

DEVICE_ROOM = 4 * ROOM
"""The same of other devices."""


def room_of(device: str) -> int:
    """How many latent pixels a batch has at most on a device, unless one painting alone has more."""
    return ROOM if device == "cpu" else DEVICE_ROOM


@dataclass
class Call:
    """An evaluation that a painting waits for: `evaluate` is the model's own, for x [batch, channels, height, width] and times
    [batch]; `key` is equal for calls of the same model, weakened alike."""

    key: object
    evaluate: Callable[[np.ndarray, np.ndarray, Conditioning, Weakening], np.ndarray]
    x: np.ndarray
    times: np.ndarray
    conditioning: Conditioning
    weakening: Weakening
    room: int
    result: np.ndarray | None = None
    error: Exception | None = None

    @property
    def pixels(self) -> int:
        """How much room it takes."""
        return int(len(self.x) * self.x.shape[2] * self.x.shape[3])

    def fits(self, other: Call) -> bool:
        """True if both can be rows of one batch."""
        return (
            self.key == other.key
            and self.weakening == other.weakening
            and self.x.shape[1:] == other.x.shape[1:]
            and alike(self.conditioning, other.conditioning)
        )

    def run(self) -> None:
        """Evaluate it alone."""
        try:
            self.result = self.evaluate(self.x, self.times, self.conditioning, self.weakening)
        except Exception as error:  # it is the painting's, which gets it
            self.error = error


class Painting:
    """A painting and its thread."""

    def __init__(self, paint: Callable[[], None]) -> None:
        self.paint = paint
        self.call: Call | None = None
        self.error: BaseException | None = None
        self._go, self._back = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, name="painting", daemon=True)
        self._thread.start()

    def go_on(self) -> None:
        """Let it run until its next evaluation, or its end, after which it has no call."""
        self.call = None
        self._go.release()
        self._back.acquire()

    def evaluated(self, call: Call) -> np.ndarray:
        """The result of an evaluation, when others have been asked for theirs."""
        self.call = call
        self._back.release()
        self._go.acquire()
        if call.error is not None:
            raise call.error
        assert call.result is not None
        return call.result

    def _run(self) -> None:
        self._go.acquire()
        HERE.painting = self
        try:
            self.paint()
        except BaseException as error:
            self.error = error
        self.call = None
        self._back.release()


HERE = threading.local()
"""`painting` is that of the thread, if it is one of several."""


def evaluated(call: Call) -> np.ndarray:
    """The result of an evaluation: at once, or with those of the paintings beside this one."""
    painting: Painting | None = getattr(HERE, "painting", None)
    if painting is not None:
        return painting.evaluated(call)
    return call.evaluate(call.x, call.times, call.conditioning, call.weakening)


def together(paintings: Sequence[Callable[[], None]]) -> None:
    """Run them all to their ends. Raises what the first of them raised."""
    if len(paintings) == 1:
        paintings[0]()
        return
    all_of_them = [Painting(each) for each in paintings]
    left = all_of_them
    while left:
        for each in left:
            each.go_on()
        left = [each for each in left if each.call is not None]
        evaluate([each.call for each in left if each.call is not None])
    for each in all_of_them:
        if each.error is not None:
            raise each.error


def evaluate(calls: Sequence[Call]) -> None:
    """Give each call its result or its error."""
    groups: list[list[Call]] = []
    for call in calls:
        for group in groups:
            if group[0].fits(call) and sum(each.pixels for each in group) + call.pixels <= call.room:
                group.append(call)
                break
        else:
            groups.append([call])
    for group in groups:
        _evaluate(group)


def _evaluate(group: Sequence[Call]) -> None:
    if len(group) == 1:
        group[0].run()
        return
    counts = [len(each.x) for each in group]
    told = joined([each.conditioning for each in group], counts)
    whole = np.concatenate([each.x for each in group]), np.concatenate([each.times for each in group])
    try:
        found = group[0].evaluate(*whole, told, group[0].weakening)
    except Exception:  # who is to blame is found alone
        for each in group:
            each.run()
        return
    for each, rows in zip(group, np.split(found, np.cumsum(counts)[:-1]), strict=True):
        each.result = rows


def alike(one: Conditioning, other: Conditioning) -> bool:
    """True if both can be told to rows of one batch."""
    return _shapes(one) == _shapes(other)


def _shapes(conditioning: Conditioning) -> list[Any]:
    """The shapes of all that a model is told, but for the number of rows."""
    values = [getattr(conditioning, each.name) for each in fields(conditioning)]
    return [
        [one.shape[1:] for one in value] if isinstance(value, tuple) else None if value is None else value.shape[1:]
        for value in values
    ]


def joined(told: Sequence[Conditioning], counts: Sequence[int]) -> Conditioning:
    """Conditionings of one row, or of a row for each of so many latents, as one of all rows."""

    def rows(arrays: Sequence[np.ndarray]) -> np.ndarray:
        return np.concatenate(
            [np.broadcast_to(each, (count, *each.shape[1:])) for each, count in zip(arrays, counts, strict=True)]
        )

    made: dict[str, Any] = {}
    for each in fields(Conditioning):
        values = [getattr(one, each.name) for one in told]
        if isinstance(values[0], tuple):
            made[each.name] = tuple(map(rows, zip(*values, strict=True)))
        elif values[0] is not None:
            made[each.name] = rows(values)
    return Conditioning(**made)
