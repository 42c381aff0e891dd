"""Composite calls: what a program may call beside ggml's functions. Each stands for several calls of ggml's, its expansion, which
says what it computes and what runs where nothing better is known. Its way is chosen when a graph is built, by C: in
`project/graphc/composites/`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from types import MappingProxyType
from typing import Any

from graphc.records import dataclass
from graphc.targets.ggml.program.rules import CALLS, Layout, packed, rule
from graphc.targets.ggml.program.tensor import Activation, Arg, Tensor, checked

PREFIX = "graphc_"

Args = tuple[Arg, ...]


@dataclass(frozen=True, eq=False, slots=True)
class Step:
    """A call of an expansion, which may run a kernel of the program; its arguments are the composite's, and earlier results."""

    function: str
    args: tuple[Arg, ...]
    result: Tensor
    kernel: int = -1


@dataclass(frozen=True, eq=False)
class Expansion:
    """The calls of ggml's that a composite call stands for, while they are made."""

    steps: list[Step] = field(default_factory=list)

    def __call__(self, function: str, *args: Arg) -> Tensor:
        """The result of one more call. Raises ProgramError for what ggml does not accept."""
        return self._made(function, args, CALLS[function](*args))

    def by_kernel(self, kernel: int, x: Tensor) -> Tensor:
        """What a kernel of the program makes of each element."""
        return self._made("ggml_custom_4d", (x,), packed(x.type, x.ne), kernel)

    def _made(self, function: str, args: Args, layout: Layout, kernel: int = -1) -> Tensor:
        result = checked(Tensor(layout.type, layout.ne, layout.nb, 4, call=len(self.steps)))
        self.steps.append(Step(function, args, result, kernel))
        return result


@dataclass(frozen=True)
class Composite:
    """What a program may call: a function that makes its expansion, the kinds of its arguments by their names, what any number
    of tensors is called that may follow ("" if none), how many tensors are made for it at most, besides one for each
    argument, the names of the ways in which it may be computed, if there are several, how many of its first arguments it
    multiplies as matrices, which may be vectors, a number for each channel, in place of what has the axes of an image, and which
    are read by calls behind it that it does itself."""

    name: str
    expand: Callable[..., Tensor]
    parameters: Mapping[str, Any]
    more: str
    made: int
    ways: tuple[str, ...]
    multiplied: int
    vectors: tuple[str, ...]
    behind: Mapping[str, str]

    def expansion(self, args: Sequence[Arg]) -> list[Step]:
        """The calls that one with these arguments stands for; the last has its result. Raises ProgramError."""
        made = Expansion()
        self.expand(made, *args)
        return made.steps


Raised = Callable[..., "Args | None"]
Tail = Callable[[Args, Tensor, Args], "Args | None"]

COMPOSITES: dict[str, Composite] = {}
"""Composites by the name that programs have for them."""

RAISED: dict[str, tuple[str, Raised]] = {}
"""ggml's functions that are a composite by themselves, and its arguments for those of ggml's; None if these are not."""

RAISED_LAST: dict[str, tuple[str, Raised]] = {}
"""Those that are one where no other composite does them on its way out."""

TAILS: dict[tuple[str, str], Tail] = {}
"""What a composite does on its way out: the call, which alone reads its result, and the arguments that it then has, for its own,
its result and the arguments of that call; None if it does not."""


COMMUTATIVE = ("ggml_add", "ggml_mul")

ActivationOrNone = Activation | bool
"""What a composite is told of its activation: none is False; ReLU may be True."""


def composite(
    *alone: str,
    behind: Mapping[str, str] = MappingProxyType({}),
    made: int = 4,
    ways: tuple[str, ...] = (),
    multiplied: int = 0,
    vectors: tuple[str, ...] = (),
) -> Callable[[Callable[..., Tensor]], str]:
    """Register a composite by the function that makes its expansion: of what makes a call, and the composite's arguments. What
    ggml accepts of the expansion, a program may call. In the function's place is the composite's name. Calls of ggml's that are
    the composite `alone` have its arguments, but for what may be missing: tensors, an activation, and what is true or false,
    which is true if the call's name ends with it. Calls `behind` it give it those, in this order. Of several `ways`, a device
    has some; of the arguments the first `multiplied` are matrices of products, and `vectors` may be such."""

    def register(expand: Callable[..., Tensor]) -> str:
        name = PREFIX + expand.__name__
        kinds = list(inspect.signature(expand, eval_str=True).parameters.values())[1:]
        fixed = {each.name: each.annotation for each in kinds if each.kind is not each.VAR_POSITIONAL}
        more = "".join(each.name for each in kinds if each.kind is each.VAR_POSITIONAL)
        made_of = COMPOSITES[name] = Composite(name, expand, fixed, more, made, ways, multiplied, vectors, behind)
        TAILS.update(
            {(name, function): functools.partial(_with_other, made_of, function) for function in behind.values()}
        )
        for function in alone:
            missing = {
                name: None if kind == Tensor | None else function.endswith(f"_{name}")
                for name, kind in fixed.items()
                if kind in (Tensor | None, ActivationOrNone, bool)
            }
            RAISED[function] = name, functools.partial(_with_missing, fixed, missing)

        @rule(name)
        def _layout(*args: Any) -> Layout:
            found = expand(Expansion(), *args)
            return Layout(found.type, found.ne, found.nb)

        return name

    return register


def _with_missing(names: Iterable[str], missing: Mapping[str, Arg], *args: Arg) -> Args:
    """All arguments, given those that are not missing."""
    given = iter(args)
    return tuple(missing[name] if name in missing else next(given) for name in names)


def _with_other(composite: Composite, function: str, args: Args, result: Tensor, behind: Args) -> Args | None:
    """The arguments of a composite that does a call behind it: with what that reads besides, or True if it reads nothing. Its
    place is the first that such calls have, if those after it have nothing either."""
    first, *others = (arg for arg in behind if isinstance(arg, Tensor))
    if first.call != result.call:
        if function not in COMMUTATIVE or first.ne != result.ne:
            return None
        others = [first]
    given = dict(zip(composite.parameters, args, strict=False))
    if len(others) > 1 or given.get("activation"):
        return None
    other = others[0] if others else None
    along = other is None or other.ne == (1, 1, result.ne[2], 1)  # along the channels of an image
    places = list(composite.behind)
    for number, place in enumerate(places):
        taken = any(given.get(name) for name in places[number:]) or (place in composite.vectors and not along)
        if composite.behind[place] != function or taken:
            continue
        if place == composite.more:
            return *args, other
        if len(args) == len(given):
            return tuple((given | {place: True if other is None else other}).values())
    return None


def raises(name: str, *functions: str, last: bool = False) -> Callable[[Raised], Raised]:
    """Say that calls of ggml's are a composite by themselves, by what gives its arguments. See `RAISED` and `RAISED_LAST`."""

    def register(arguments: Raised) -> Raised:
        (RAISED_LAST if last else RAISED).update(dict.fromkeys(functions, (name, arguments)))
        return arguments

    return register


def tail(name: str, behind: str) -> Callable[[Tail], Tail]:
    """Say that a composite does what a call behind it does. See `TAILS`."""

    def register(arguments: Tail) -> Tail:
        TAILS[name, behind] = arguments
        return arguments

    return register


def along_channels(call: Expansion, x: Tensor | None) -> Tensor | None:
    """A vector with the axes of an image, a number for each channel; what has them stays."""
    return x if x is None or x.ne[1:] != (1, 1, 1) else call("ggml_reshape_4d", x, 1, 1, x.ne[0], 1)
