"""Frozen dataclasses that are defined in a fourth of the time: to start a model takes some sixty of them.

`dataclasses` compiles up to six functions of text for each class. Here `__init__` is one; what else there is, all classes share.
"""

from __future__ import annotations

import dataclasses
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass

Class = TypeVar("Class", bound=type)


def _dataclass(cls: Class | None = None, /, *, eq: bool = True, frozen: bool = False, slots: bool = False) -> Any:
    """As `dataclasses.dataclass`, which makes those that are not frozen. One that is has no others as its bases or subclasses."""
    if cls is None:
        return partial(_dataclass, eq=eq, frozen=frozen, slots=slots)
    if not frozen:
        return dataclasses.dataclass(eq=eq, slots=slots)(cls)
    made: Any = dataclasses.dataclass(init=False, repr=False, eq=False, slots=slots)(cls)
    fields = dataclasses.fields(made)
    given = {
        "__init__": _init(fields, hasattr(made, "__post_init__")),
        "__repr__": _repr,
        "__setattr__": _refused,
        "__delattr__": _refused,
    }
    if slots:
        given |= {"__getstate__": _state, "__setstate__": _set_state}
    if eq:
        values = _values([field.name for field in fields if field.compare])
        given |= {
            "__eq__": lambda self, other: (
                values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented
            ),
            "__hash__": lambda self: hash(values(self)),
        }
    for name, function in given.items():
        if vars(made).get(name) is None:  # a class that has `__eq__` has None for `__hash__`
            setattr(made, name, function)
    return made


def _init(fields: tuple[dataclasses.Field[Any], ...], checked: bool) -> Any:
    """The function that makes an object: its parameters are the fields."""
    names: dict[str, Any] = {"put": object.__setattr__}
    parameters, lines = ["self"], []
    for field in fields:
        name = field.name
        value, default = name, f" = default_{name}"
        if field.default is not dataclasses.MISSING:
            names[f"default_{name}"] = field.default
        elif field.default_factory is not dataclasses.MISSING:
            names[f"default_{name}"], names[f"make_{name}"] = dataclasses.MISSING, field.default_factory
            value = f"make_{name}() if {name} is default_{name} else {name}"
        else:
            default = ""
        parameters.append(f"{name}{default}")
        lines.append(f"    put(self, {name!r}, {value})\n")
    if checked:
        lines.append("    self.__post_init__()\n")
    exec(f"def __init__({', '.join(parameters)}):\n{''.join(lines) or '    pass'}", names)
    return names["__init__"]


def _values(names: list[str]) -> Any:
    """What gives the values of these attributes, as a tuple."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda each: tuple(getattr(each, name) for name in names)


def _repr(self: Any) -> str:
    shown = (f"{each.name}={getattr(self, each.name)!r}" for each in dataclasses.fields(self) if each.repr)
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _refused(self: Any, name: str, value: Any = None) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot change {name!r}")


def _state(self: Any) -> list[Any]:
    return [getattr(self, each.name) for each in dataclasses.fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:
    for each, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, each.name, value)


if not TYPE_CHECKING:
    dataclass = _dataclass
