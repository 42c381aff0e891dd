"""In which of ggml's types the weights of a program are stored: what is asked for, as far as the calls that read them take it.

A type is asked for by name, for all weights or for those whose names fit a pattern. Of what is asked for all, the layers that
would lose the most are left out; a pattern is taken at its word. Where a type is not possible, the one that comes next to it is
taken, and `Dtypes.choices` says so. Where nothing is asked for, weights that the model has in half precision stay so.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from itertools import chain
from math import prod
from typing import TypeAlias, Union

from graphc.errors import InputError
from graphc.ggml_types import GUIDED, HALVES, QUANTIZED, fits
from graphc.ir.graph import Graph
from graphc.ir.numbers import sources
from graphc.ir.types import BF16, F16, F32
from graphc.ops.control import bodies
from graphc.targets.ggml.program.calls import RESHAPES
from graphc.targets.ggml.program.program import Call, Program, Weight, with_blocks
from graphc.targets.ggml.program.prune import pruned
from graphc.targets.ggml.program.tensor import Tensor

Asked: TypeAlias = Union[str, Sequence[str], Mapping[str, str]]
"""A type (`"q8_0"`), or several, each for a pattern of names (`"*.attn*.weight=q4_k"`); of those that fit, the last counts."""

NAMES = ("F32", *HALVES, *(name for name in QUANTIZED if name not in GUIDED))
"""Types that can be asked for."""

Stored: TypeAlias = Callable[[int], tuple[str, str]]
"""The type that a checkpoint has a weight in, and the one to keep it in: another if it is computed of what is there."""

FROM_CHECKPOINT = "CHECKPOINT"
"""Asked for in place of a type: the one that a checkpoint has the weight in. As long as there is none, it is float32."""

EVERYTHING = "*"

CONVOLUTIONS = (
    "ggml_conv_2d",
    "ggml_conv_2d_direct",
    "ggml_conv_3d_direct",
    "graphc_conv_3d",
    "ggml_conv_transpose_2d_p0",
)

TABLE = "ggml_get_rows"

TAKEN: Mapping[str, Sequence[str]] = {
    "ggml_mul_mat": (*HALVES, *QUANTIZED),
    TABLE: (*HALVES, *QUANTIZED),
    **dict.fromkeys(CONVOLUTIONS, ("F16",)),
}
"""The narrower types that a call takes for its first argument."""

NEXT = {
    "Q2_K": "Q4_0", "Q3_K": "Q4_0", "Q4_K": "Q5_0", "Q5_K": "Q5_1", "Q6_K": "Q8_0", "TQ1_0": "Q4_0", "TQ2_0": "Q4_0",
    **dict.fromkeys(("IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "IQ4_XS"), "IQ4_NL"),
}  # fmt: skip
"""What is taken where a row is not whole blocks; after these float16. It is as exact at least."""

SMALL = 4096
"""Elements of a weight that is too small for its type to matter."""


@dataclass(frozen=True)
class Choice:
    """The type of a weight, beside the one that was asked for, and the reason if it is another."""

    weight: str
    asked: str
    type: str
    reason: str = ""


@dataclass
class Dtypes:
    """What was asked for: types by pattern. After `applied`, `choices` has an entry for each weight that could have another type
    than float32 or was named by a pattern."""

    rules: list[tuple[str, str]]
    choices: list[Choice] = field(default_factory=list)

    @classmethod
    def parsed(cls, asked: Asked) -> Dtypes:
        """Raises InputError for a type that there is not."""
        if isinstance(asked, str):
            asked = [asked]
        texts = [f"{pattern}={type}" for pattern, type in asked.items()] if isinstance(asked, Mapping) else asked
        return cls([_rule(text) for text in texts])

    @property
    def from_checkpoint(self) -> bool:
        """True if a checkpoint decides for some weights."""
        return any(type == FROM_CHECKPOINT for _, type in self.rules)

    def asked(self, names: Iterable[str]) -> tuple[str, str]:
        """The type for a weight that is known by these names, and the pattern by which it was asked for ("" if none was)."""
        known = list(names)
        for pattern, type in reversed(self.rules):
            if any(fnmatchcase(name, pattern) for name in known):
                return type, pattern
        return "F32", ""

    def mark(self, graph: Graph) -> None:
        """Say of constants that they are to be stored in a narrower type: rules leave them where products take those."""
        for value in graph.constants():
            assert value.origin is not None, f"{value} is a constant"
            wider = value.dtype in (F32, *HALVES.values())
            value.origin.narrow = wider and self.asked(_known(value.name, value.parameter))[0] != "F32"
        for body in bodies(graph):
            self.mark(body.graph)

    def applied(
        self, program: Program, stored: Stored | None = None, made_of: Sequence[Sequence[str]] | None = None
    ) -> Program:
        """The program with its weights in the types that were asked for, its recipes as they were. `made_of` are the parameters
        of each weight, if the program is from an engine and does not know them.

        Raises InputError for a pattern that no weight fits.
        """
        names = [names_of(weight) for weight in program.weights]
        if made_of is not None:
            names = [list(dict.fromkeys((*own, *read))) for own, read in zip(names, made_of, strict=True)]
        self._check_patterns(names)
        read = Uses(program)
        pairs = enumerate(zip(program.weights, names, strict=True))
        found = [self._choice(weight, known, index, read, stored) for index, (weight, known) in pairs]
        self.choices += [each for each in found if each is not None]
        chosen = zip(program.weights, found, strict=True)
        result = pruned(program, [weight.tensor.type if choice is None else choice.type for weight, choice in chosen])
        result.recipes = program.recipes
        return result

    def _check_patterns(self, names: Sequence[Sequence[str]]) -> None:
        for pattern, _ in self.rules if names else ():
            if not any(fnmatchcase(name, pattern) for name in chain.from_iterable(names)):
                raise InputError(f"--dtype {pattern}: no weight has such a name; graphc inspect --weights shows them")

    def _choice(
        self, weight: Weight, known: Sequence[str], index: int, read: Uses, stored: Stored | None
    ) -> Choice | None:
        """The type of a weight that is known by these names; None if no other than its own comes into question."""
        asked, pattern = self.asked(known)
        if not pattern:
            return _as_the_model_has_it(weight, read.of[index])
        uses, given = read.of[index], asked == FROM_CHECKPOINT
        by_name = pattern not in ("", EVERYTHING) and not given
        if weight.dtype != F32 or asked == "F32" or not (by_name or _is_operand(uses)):
            return None
        if given and stored is None:
            return None
        asked, nearest = stored(index) if given and stored else (asked, asked)
        reason, wider = ("", "") if given or by_name else kept(asked, weight, uses, read.edges)
        type, why = (wider, reason) if reason else possible(nearest, weight, uses, {} if given else NEXT)
        why = why or ("computed of the checkpoint's, or cuts its blocks" if asked != nearest else "")
        return Choice(weight.label, asked, type, why)

    def notes(self) -> list[str]:
        """What is other than asked for, a line for each reason."""
        groups: dict[tuple[str, str, str], list[str]] = defaultdict(list)
        for each in self.choices:
            if each.reason:
                groups[each.asked, each.type, each.reason].append(each.weight)
        return [
            f"{len(names)} {'weight is' if len(names) == 1 else 'weights are'} {type.lower()} instead of {asked.lower()}: "
            f"{reason} ({some(names)})"
            for (asked, type, reason), names in groups.items()
        ]


def _rule(text: str) -> tuple[str, str]:
    pattern, equals, type = text.rpartition("=")
    if type.upper() not in (*NAMES, FROM_CHECKPOINT) or (equals and not pattern):
        there = ", ".join(name.lower() for name in (*NAMES, FROM_CHECKPOINT))
        raise InputError(f"--dtype {text}: must be TYPE or PATTERN=TYPE; types are {there}")
    return pattern or EVERYTHING, type.upper()


def _known(*names: str) -> list[str]:
    return [name for name in names if name]


def names_of(weight: Weight) -> list[str]:
    """A weight's name, and those of the parameters that it is made of."""
    made_of = [] if weight.value is None else [each.parameter for each in sources(weight.value)]
    return list(dict.fromkeys(_known(weight.name, *made_of)))


@dataclass(frozen=True, eq=False)
class Use:
    """A call that reads a weight, or a reshaped one, as an argument; `row` is how many elements its rows have there."""

    call: Call
    position: int
    row: int


class Uses:
    """How a program reads its weights: the uses `of` each by index, in its blocks too; `edges` are the convolutions that no other
    is before or behind."""

    def __init__(self, program: Program) -> None:
        self.of: dict[int, list[Use]] = defaultdict(list)
        for block in with_blocks(program):
            self._block(block)
        self.edges = edge_convolutions(program)

    def _block(self, block: Program) -> None:
        origin: dict[int, int] = {}
        for index, call in enumerate(block.calls):
            for position, arg in enumerate(call.args):
                if not isinstance(arg, Tensor) or (arg.weight < 0 and arg.call not in origin):
                    continue
                weight = arg.weight if arg.weight >= 0 else origin[arg.call]
                if call.function in RESHAPES:
                    origin[index] = weight
                assert isinstance(arg.ne[0], int)
                self.of[weight].append(Use(call, position, arg.ne[0]))


def edge_convolutions(program: Program) -> set[Call]:
    """The convolutions of a program, not of its blocks, that no other is before, or behind."""
    reads = [[arg.call for arg in call.args if isinstance(arg, Tensor) and arg.call >= 0] for call in program.calls]
    own = [call.function in CONVOLUTIONS for call in program.calls]
    before, behind = [False] * len(reads), [False] * len(reads)
    for index, read in enumerate(reads):
        before[index] = any(own[each] or before[each] for each in read)
    for index, read in reversed(list(enumerate(reads))):
        for each in read:
            behind[each] = behind[each] or own[index] or behind[index]
    return {
        call for call, *around in zip(program.calls, own, before, behind, strict=True) if around[0] and not all(around)
    }


def kept(asked: str, weight: Weight, uses: Sequence[Use], edges: set[Call]) -> tuple[str, str]:
    """Why a weight gets a wider type where one is asked for all, and which; "" if nothing speaks against it."""
    reasons = {
        "too small to matter": (prod(weight.shape) < SMALL, "F32"),
        "first or last convolution": (any(use.call in edges for use in uses), "F32"),
        "rows of a table are looked up": (
            asked in QUANTIZED and any(use.call.function == TABLE for use in uses),
            possible("F16", weight, uses, {})[0],
        ),
    }
    return next(((reason, type) for reason, (holds, type) in reasons.items() if holds), ("", ""))


def possible(asked: str, weight: Weight, uses: Sequence[Use], others: Mapping[str, str]) -> tuple[str, str]:
    """The type nearest to the one asked for that all calls take and whose blocks fit the rows; and why it is another. Of what
    comes next `others` has all but float16, and float32 after that."""
    if not _is_operand(uses):
        return "F32", "no weight of a product, a convolution or a table"
    taken = set[str].intersection(*(set(TAKEN[use.call.function]) for use in uses if use.call.function in TAKEN))
    rows = {use.row for use in uses} | set(weight.shape[-1:])
    type = asked
    while type != "F32" and not (type in taken and (type in HALVES or all(fits(type, row) for row in rows))):
        type = "F32" if type == "F16" else others.get(type, "F16")
    if type == asked:
        return type, ""
    cut = [row for row in sorted(rows) if asked in QUANTIZED and not fits(asked, row)]
    return type, f"blocks do not fit rows of {cut[0]}" if asked in taken and cut else "a convolution takes no other"


def _as_the_model_has_it(weight: Weight, uses: Sequence[Use]) -> Choice | None:
    """Half precision for a weight that is no more than that, in another shape or order; None for others, and where what reads it
    takes float32 alone."""
    type = half_of(weight)
    taken = weight.dtype == F32 and _is_operand(uses) and type and possible(type, weight, uses, {})[0] == type
    return Choice(weight.label, type, type) if taken else None


def half_of(weight: Weight) -> str:
    """The half precision in which a model has a float32 weight, with the same numbers; "" if it does not."""
    value, moved = weight.value, ("Reshape", "Transpose", "Slice", "Cast")
    while value is not None and value.producer is not None and value.producer.op.name in moved:
        value = value.producer.inputs[0]
        if value.dtype != F32:
            break
    return "" if value is None else {F16: "F16", BF16: "BF16"}.get(value.dtype, "")


def _is_operand(uses: Sequence[Use]) -> bool:
    """True if all that read a weight read it as the first argument of calls that take narrower types."""
    read = [use for use in uses if use.call.function not in RESHAPES]
    return bool(read) and all(use.call.function in TAKEN and use.position == 0 for use in read)


def some(names: Sequence[str]) -> str:
    """The first of them."""
    return ", ".join(names[:3]) + (", …" if len(names) > 3 else "")
