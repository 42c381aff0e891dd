"""What has to be made anew in a process that was forked: locks that other threads may have held, and threads, which are not
there any more."""

from __future__ import annotations

import os
from typing import Protocol
from weakref import WeakSet


class Renewed(Protocol):
    """What is told when it finds itself in a child."""

    def renew(self) -> None:
        """The process was forked, and nothing else runs in it yet."""


_renewed: WeakSet[Renewed] = WeakSet()


def renew_in_child(each: Renewed) -> None:
    """Have `renew` called in every process that is forked from now on, as long as the object lives."""
    _renewed.add(each)


def _renew() -> None:
    for each in list(_renewed):
        each.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
