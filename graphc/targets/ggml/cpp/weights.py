"""The structs that hold a program's weights. They mirror the modules of the model: a parameter `layers.0.fc.weight` is
`weights.layers[0].fc.weight`. Modules with the same parts share a struct; a part that one of them lacks is null there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from graphc.targets.ggml.cpp.names import Names, identifier, singular, snake, type_name
from graphc.targets.ggml.cpp.scopes import Path, Ref, common, reference, split_path
from graphc.targets.ggml.program.calls import VIEWS
from graphc.targets.ggml.program.composites import COMPOSITES
from graphc.targets.ggml.program.program import Call, Program
from graphc.targets.ggml.program.prune import live_calls
from graphc.targets.ggml.program.tensor import Tensor

PARAMETER = re.compile(r"\w+(\.\w+)+", re.ASCII)

DEEPEST = 50
"""Modules inside each other from which on a name is not a parameter's."""

ROLES: Mapping[tuple[str, int], str] = {
    ("graphc_linear", 1): "weight",
    ("ggml_conv_transpose_2d_p0", 0): "weight",
    ("ggml_im2col", 0): "weight",
    ("ggml_get_rows", 0): "table",
    ("ggml_get_rows", 1): "rows",
    ("ggml_add", 1): "bias",
    ("ggml_mul", 1): "weight",
    ("graphc_add", 1): "bias",
    ("graphc_mul", 1): "weight",
    ("ggml_soft_max_ext", 1): "mask",
}  # fmt: skip
"""What a weight without a name of its own is called, by the call that reads it and which argument it is."""

OPERANDS: Mapping[str, str] = {
    "weight": "weight", "kernel": "weight", "scale": "weight", "bias": "bias", "shift": "bias", "sums": "bias", "mask": "mask",
    "cos": "cos", "sin": "sin", "scales": "scales", "shifts": "shifts",
}  # fmt: skip
"""The same where a composite reads it, by what the composite calls the operand."""

SHARED_ROLES = {"mask", "table", "rows", "cos", "sin"}

MOVES = VIEWS | {"graphc_copy", "ggml_cast", "graphc_cast", "ggml_repeat_4d"}
"""Calls that only move what they are given."""

KINDS: Mapping[str, str] = {
    "graphc_linear": "Linear",
    "graphc_gated_linear": "Linear",
    "graphc_scaled_linear": "Linear",
    "graphc_conv_2d": "Conv",
    "graphc_conv_3d": "Conv",
    "graphc_layer_norm": "Norm",
    "graphc_rms_norm": "Norm",
    "graphc_group_norm": "Norm",
    "graphc_conv_2d_dw": "Conv",
    "graphc_conv_2d_last": "Conv",
    "graphc_expanded_conv_2d": "Conv",
    "ggml_conv_transpose_2d_p0": "Conv",
    "ggml_im2col": "Conv",
    "ggml_mul": "Norm",
    "graphc_mul": "Norm",
    "ggml_get_rows": "Embedding",
}
"""What a module of tensors alone is called, by the call that reads its `weight`."""


@dataclass(frozen=True)
class Part:
    """The type of a member: a tensor, a struct, or `length` of either."""

    struct: str = ""
    length: int = 0

    def __str__(self) -> str:
        element = self.struct or "ggml_tensor *"
        return f"std::array<{element}, {self.length}>" if self.length else element


@dataclass
class Struct:
    """A struct of the generated header."""

    name: str
    members: dict[str, Part] = field(default_factory=dict)

    def accepts(self, members: Mapping[str, Part]) -> bool:
        """True if a module with these members may use this struct: most are the same, none is another kind of thing."""
        shared = self.members.keys() & members.keys()
        alike = all(
            self.members[name].struct == members[name].struct
            and bool(self.members[name].length) == bool(members[name].length)
            for name in shared
        )
        return alike and 2 * len(shared) >= min(len(self.members), len(members))

    def merge(self, members: Mapping[str, Part]) -> None:
        """Add what is missing; an array becomes as long as the longer one."""
        for name, part in members.items():
            known = self.members.setdefault(name, part)
            if part.length > known.length:
                self.members[name] = part


@dataclass
class Node:
    """A module, or a list of modules, with its parameters (weight indices)."""

    children: dict[str, Node | int] = field(default_factory=dict)
    part: Part = Part()
    names: dict[str, str] = field(default_factory=dict)
    """The member that each child is; empty if this node is an array."""


class WeightTree:
    """Where each weight of a model is, in structs that mirror the modules. `programs` are those that share the weights."""

    def __init__(self, programs: Sequence[Program], class_name: str) -> None:
        self.program = program = programs[0]
        self.readers = _readers(programs)
        self.root = Node()
        self.paths: list[Path] = []
        for index, path in enumerate(apart(_paths(program, self.readers))):
            self.paths.append(self._insert(path, index))
        self._named: dict[str, Struct] = {}
        self._by_name: dict[str, list[Struct]] = {}
        members = {identifier(part, "part") for path in self.paths for part in path}
        self._type_names = Names(frozenset({"Weights", "Sizes", "Inputs", "Outputs", class_name} | members))
        self._classify(self.root, "Weights", is_root=True)
        self.structs = self._in_order()
        self.access = dict(self._texts(self.root, (), "weights"))

    def node(self, path: Path) -> Node | None:
        """The module with this path, if it has parameters."""
        node: Node | int | None = self.root
        for part in path:
            node = node.children.get(part) if isinstance(node, Node) else None
        return node if isinstance(node, Node) else None

    def type(self, path: Path) -> str:
        """The C++ type of a module's weights."""
        node = self.node(path)
        assert node is not None
        if not node.names and node.part.length and path:
            return str(self._longest(path))
        return str(node.part)

    def array(self, path: Path) -> tuple[Path, int, int] | None:
        """The array that a module is an element of, its place there and the array's length."""
        parent = self.node(path[:-1]) if path else None
        if parent is None or parent.names or not parent.part.length:
            return None
        return path[:-1], int(path[-1]), self._longest(path[:-1]).length

    def _longest(self, path: Path) -> Part:
        """The type of an array, as the struct that it is a member of declares it."""
        parent = self.node(path[:-1])
        assert parent is not None
        return self._named[parent.part.struct].members[parent.names[path[-1]]]

    def _insert(self, path: Path, index: int) -> Path:
        """Add a weight, at a path that no other weight has or lies below."""
        node, placed = self.root, []
        for part in path[:-1]:
            while isinstance(node.children.get(part), int):
                part += "_"
            child = node.children.setdefault(part, Node())
            assert isinstance(child, Node)
            node = child
            placed.append(part)
        name, count = path[-1], 2
        while name in node.children:
            name = f"{path[-1]}_{count}"
            count += 1
        node.children[name] = index
        return (*placed, name)

    def _classify(self, node: Node, hint: str, is_root: bool = False) -> Part:
        """Give a module its struct, or make it an array where its children are numbered and alike."""
        parts: dict[str, Part] = {}
        for name, child in node.children.items():
            numbered = name.isdigit()
            part_hint = singular(hint) if numbered else name
            parts[name] = self._classify(child, part_hint) if isinstance(child, Node) else Part()
        numbers = [name for name in parts if name.isdigit()]
        kinds = set(parts.values())
        in_order = sorted(map(int, numbers)) == list(range(len(parts))) and all(
            name == str(int(name)) for name in numbers
        )
        if not is_root and parts and in_order and len(kinds) == 1 and not next(iter(kinds)).length:
            node.part = Part(next(iter(kinds)).struct, len(parts))
            return node.part
        names = Names()
        for name, part in parts.items():
            base = f"{snake(part.struct) or 'item'}_{name}" if name.isdigit() else name
            node.names[name] = names.fresh(identifier(base, "part"))
        members = {node.names[name]: part for name, part in parts.items()}
        node.part = Part(self._struct(self._hint(node, hint), members).name)
        return node.part

    def _hint(self, node: Node, hint: str) -> str:
        weight = node.children.get("weight")
        if isinstance(weight, int) and not any(isinstance(child, Node) for child in node.children.values()):
            return _kind(self.program, self.readers, weight) or hint
        return hint

    def _struct(self, hint: str, members: Mapping[str, Part]) -> Struct:
        name = "Weights" if hint == "Weights" else type_name(hint.rstrip("0123456789_") or hint)
        inner = self._parts_of(members)
        for struct in self._by_name.setdefault(name, []):
            if struct.accepts(members) and struct.name not in inner:
                struct.merge(members)
                return struct
        struct = Struct(
            "Weights" if hint == "Weights" else self._type_names.fresh(name, f"{name}Weights"), dict(members)
        )
        self._by_name[name].append(struct)
        self._named[struct.name] = struct
        return struct

    def _parts_of(self, members: Mapping[str, Part]) -> set[str]:
        """The structs that members are made of, however deep."""
        found: set[str] = set()
        stack = [part.struct for part in members.values() if part.struct]
        while stack:
            name = stack.pop()
            if name not in found:
                found.add(name)
                stack += [part.struct for part in self._named[name].members.values() if part.struct]
        return found

    def _in_order(self) -> list[Struct]:
        """The structs, each after those that it is made of."""
        result: dict[str, Struct] = {}

        def place(struct: Struct) -> None:
            for part in struct.members.values():
                if part.struct and part.struct not in result:
                    place(self._named[part.struct])
            result.setdefault(struct.name, struct)

        for struct in self._named.values():
            place(struct)
        return list(result.values())

    def _texts(self, node: Node, path: Path, text: str) -> Iterator[tuple[Path, str]]:
        yield path, text
        for name, child in node.children.items():
            place = f"{text}.{node.names[name]}" if node.names else f"{text}[{name}]"
            if isinstance(child, Node):
                yield from self._texts(child, (*path, name), place)
            else:
                yield (*path, name), place


def apart(paths: Sequence[Path]) -> list[Path]:
    """The paths, where what lies below a parameter stands beside it: `norm.weight.scaled` becomes `norm.weight_scaled`."""
    known = set(paths)
    result = []
    for path in paths:
        depth = next((depth for depth in range(1, len(path)) if path[:depth] in known), len(path))
        result.append((*path[: depth - 1], "_".join(path[depth - 1 :])))
    return result


def _readers(programs: Sequence[Program]) -> dict[int, list[tuple[Call, int]]]:
    """The live calls that compute with each weight, and as which argument; what only moves it is looked through."""
    found: dict[int, list[tuple[Call, int]]] = {}
    for program in programs:
        for weight, reading in _readers_in(program).items():
            found.setdefault(weight, []).extend(reading)
    return found


def _readers_in(program: Program) -> dict[int, list[tuple[Call, int]]]:
    readers: dict[Ref, list[tuple[Call, int]]] = {}
    for index in sorted(live_calls(program)):
        call = program.calls[index]
        for position, arg in enumerate(call.args):
            if isinstance(arg, Tensor):
                readers.setdefault(reference(arg), []).append((call, position))
    return {index: list(_through(readers, ("weight", index))) for index in range(len(program.weights))}


def _through(readers: Mapping[Ref, Sequence[tuple[Call, int]]], ref: Ref) -> Iterator[tuple[Call, int]]:
    for call, position in readers.get(ref, ()):
        if call.function in MOVES and position == 0:
            yield from _through(readers, reference(call.result))
        else:
            yield call, position


def _kind(program: Program, readers: Mapping[int, Sequence[tuple[Call, int]]], weight: int) -> str | None:
    """What the first call that computes with a weight makes of its module."""
    if len(program.weights[weight].shape) > 2:
        return "Conv"
    return next((KINDS[call.function] for call, _ in readers[weight] if call.function in KINDS), None)


def _role(reading: Sequence[tuple[Call, int]]) -> str:
    """What a constant is called by what reads it; one that several calls read is a parameter of none."""
    roles = {_role_in(call, position) for call, position in reading}
    return roles.pop() if len(roles) == 1 and (len(reading) == 1 or roles <= SHARED_ROLES) else "constant"


def _role_in(call: Call, position: int) -> str:
    """What a constant is called by one call that reads it."""
    role, composite = ROLES.get((call.function, position)), COMPOSITES.get(call.function)
    if role is not None or composite is None:
        return role or "constant"
    names = [
        *composite.parameters,
        composite.more,
    ]  # of those that may be any number, the first is no other than the bias
    return OPERANDS.get(names[position], "constant") if position < len(names) else "constant"


def _paths(program: Program, readers: Mapping[int, Sequence[tuple[Call, int]]]) -> list[Path]:
    """A parameter's own name, or for another constant the module that all its readers are in and what they use it as."""
    found: list[Path] = []
    for index, weight in enumerate(program.weights):
        reading = readers.get(index, ())
        module = split_path(common([call.scope for call, _ in reading]))
        if PARAMETER.fullmatch(weight.name) and weight.name.count(".") < DEEPEST:
            found.append(tuple(weight.name.split(".")))
        elif not module and re.fullmatch(r"[A-Za-z_]\w*", weight.name, re.ASCII):
            found.append((weight.name,))
        else:
            found.append((*module, _role(reading)))
    return found
