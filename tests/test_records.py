"""Frozen dataclasses of graphc's own behave as those of `dataclasses`."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from dataclasses import FrozenInstanceError, field, fields, replace
from typing import ClassVar

import pytest

from graphc import records


class Plain:
    """A class to be decorated."""

    first: int
    second: str = "two"
    third: list[int] = field(default_factory=list, compare=False, repr=False)
    kind: ClassVar[str] = "plain"

    @property
    def both(self) -> str:
        return f"{self.first} {self.second}"


class One:
    only: float


class Nothing:
    pass


class Checked:
    least: int
    most: int = 9

    def __post_init__(self) -> None:
        if self.least > self.most:
            raise ValueError("the wrong way round")


class Own:
    value: int

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self)) and abs(self.value) == abs(other.value)

    def __repr__(self) -> str:
        return "own"


def made(decorator, cls: type, **options: bool) -> type:
    """A class of the same body, decorated."""
    again = {name: value for name, value in vars(cls).items() if name not in ("__dict__", "__weakref__", "__hash__")}
    return decorator(frozen=True, **options)(type(cls.__name__, (), again))


@pytest.fixture(params=[{}, {"slots": True}, {"eq": False}, {"eq": False, "slots": True}], ids=str)
def options(request):
    return request.param


def both(cls: type, options: dict[str, bool]) -> tuple[type, type]:
    return made(dataclasses.dataclass, cls, **options), made(records.dataclass, cls, **options)


def outcome(function, cls: type):
    """What a function gives for a class, or the kind of its error."""
    try:
        return function(cls)
    except Exception as error:
        return type(error)


CALLS = [
    lambda cls: repr(cls(1)),
    lambda cls: repr(cls(1, "b", [3])),
    lambda cls: repr(cls(first=1, third=[2])),
    lambda cls: cls(1).third is cls(1).third,
    lambda cls: cls(1, "b").both,
    lambda cls: cls(),
    lambda cls: cls(1, 2, 3, 4),
    lambda cls: cls(1, first=2),
    lambda cls: cls(1, fourth=2),
    lambda cls: cls(1) == cls(1),
    lambda cls: cls(1) == cls(1, third=[4]),
    lambda cls: cls(1) == cls(2),
    lambda cls: cls(1) == 1,
    lambda cls: len({cls(1), cls(1), cls(2)}),
    lambda cls: repr(replace(cls(1), second="c")),
    lambda cls: setattr(cls(1), "first", 2),
    lambda cls: delattr(cls(1), "first"),
    lambda cls: [each.name for each in fields(cls)],
    lambda cls: dataclasses.asdict(cls(1)),
    lambda cls: cls.__match_args__,
    lambda cls: repr(copy.copy(cls(1))),
    lambda cls: repr(copy.deepcopy(cls(1, "b", [5])).third),
    lambda cls: cls.kind,
    lambda cls: hasattr(cls(1), "__dict__"),
]


@pytest.mark.parametrize("call", CALLS)
def test_as_dataclasses_do(call, options):
    expected, found = (outcome(call, cls) for cls in both(Plain, options))
    assert found == expected


@pytest.mark.parametrize("cls", [One, Nothing])
def test_few_fields(cls, options):
    expected, found = both(cls, options)
    given = [float("nan")] * len(fields(found))
    for each in (lambda cls: repr(cls(*given)), lambda cls: cls(*given) == cls(*given), lambda cls: hash(cls(*given))):
        if options.get("eq", True):
            assert outcome(each, found) == outcome(each, expected)


def test_what_is_checked(options):
    _, found = both(Checked, options)
    assert found(1).most == 9
    with pytest.raises(ValueError, match="wrong way round"):
        found(10)


def test_what_a_class_has_stays(options):
    expected, found = both(Own, options)
    assert repr(found(1)) == "own"
    assert found(1) == found(-1)
    assert outcome(lambda cls: isinstance(hash(cls(1)), int), found) == outcome(
        lambda cls: isinstance(hash(cls(1)), int), expected
    )


def test_what_is_not_frozen_is_a_dataclass():
    @records.dataclass
    class Counter:
        count: int = 0

    counter = Counter()
    counter.count += 1
    assert counter == Counter(1)


@records.dataclass(frozen=True, slots=True)
class Kept:
    name: str
    sizes: tuple[int, ...] = ()


def test_pickled():
    kept = Kept("a", (1, 2))
    again = pickle.loads(pickle.dumps(kept))
    assert again == kept
    with pytest.raises(FrozenInstanceError):
        again.name = "b"
