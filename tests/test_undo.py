"""Parameters are found again in stored weights exactly, or not at all."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from graphc.ir.graph import Graph, Origin, Value
from graphc.ir.types import F16, F32, TensorType
from graphc.ops.movement import Concat, Reshape, Slice, Transpose
from graphc.ops.pointwise import Binary, Cast
from graphc.targets.ggml.program.program import Program
from graphc.weights.recipes import recipes_of, write_recipes
from graphc.weights.undo import Base, undone


def moved(graph: Graph, value: Value, draw: Any) -> Value:
    """The value after one movement."""
    shape = tuple(int(size) for size in value.shape)
    match draw(st.sampled_from(("turn", "flat", "split", "part", "twice"))):
        case "turn":
            op: Any = Transpose(tuple(draw(st.permutations(range(len(shape))))))
        case "flat":
            op = Reshape((int(np.prod(shape)),))
        case "split":
            op = Reshape((*shape[:-1], shape[-1] // 2, 2) if shape[-1] % 2 == 0 else (1, *shape))
        case "part":
            starts = tuple(draw(st.integers(0, size - 1)) for size in shape)
            sizes = tuple(draw(st.integers(1, size - start)) for size, start in zip(shape, starts, strict=True))
            op = Slice(starts, sizes, (1,) * len(shape))
        case "twice":
            return graph.make(Concat(0), [value, value]).output
    return graph.make(op, [value]).output


@st.composite
def programs(draw: Any) -> tuple[Program, dict[str, np.ndarray]]:
    """Weights that are chains of movements of two parameters, alone or joined; one may be float16 that is widened."""
    graph, program = Graph("g"), Program("g")
    random = np.random.default_rng(draw(st.integers(0, 1000)))
    arrays = {
        name: random.standard_normal(tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)))).astype(dtype)
        for name, dtype in (("a", F32), ("b", draw(st.sampled_from((F16, F32)))))
    }
    values = []
    for name, array in arrays.items():
        value = Value(name, TensorType(array.dtype, array.shape), data=array, origin=Origin())
        graph.declare_parameter(value, name)
        values.append(graph.make(Cast(F32), [value]).output if array.dtype == F16 else value)
    for _ in range(draw(st.integers(1, 3))):
        chosen = draw(st.sampled_from((values[:1], values[1:], values)))
        flat = []
        for each in chosen:
            for _ in range(draw(st.integers(0, 4))):
                each = moved(graph, each, draw)
            flat.append(graph.make(Reshape((int(np.prod(each.shape)),)), [each]).output)  # type: ignore[arg-type]
        made = graph.make(Concat(0), flat).output if len(flat) > 1 else flat[0]
        for _ in range(draw(st.integers(0, 2))):
            made = moved(graph, made, draw)
        if draw(st.booleans()) and draw(st.booleans()):
            made = graph.make(Binary("Mul"), [made, made]).output
        program.add_weight("w", F32, tuple(int(size) for size in made.shape), made)
    program.recipes = write_recipes(program, graph.parameters)
    return program, arrays


@settings(max_examples=300)
@given(programs())
def test_what_is_found_is_exact(drawn: tuple[Program, dict[str, np.ndarray]]) -> None:
    program, arrays = drawn
    recipes = recipes_of(program)
    by_value = {each: arrays[each.parameter] for each in recipes.parameters}
    stored = [recipes.compute(index, by_value) for index in range(len(program.weights))]
    base = Base(program, stored.__getitem__)
    for value in base.recipes.parameters:
        if base.knows(value):
            found = base.parameter(value)
            assert found.dtype == value.dtype
            assert found.tobytes() == arrays[value.parameter].tobytes()


def compiled(*operators: Any, shape: tuple[int, ...] = (4, 6)) -> tuple[Base, Value, np.ndarray]:
    """One weight for each chain of operators over a parameter."""
    graph, program = Graph("g"), Program("g")
    array = np.random.default_rng(3).standard_normal(shape).astype(np.float32)
    value = Value("w", TensorType(F32, shape), data=array, origin=Origin())
    graph.declare_parameter(value, "w")
    for chain in operators:
        made = value
        for op in chain:
            made = graph.make(op, [made]).output
        program.add_weight("w", F32, tuple(int(size) for size in made.shape), made)
    program.recipes = write_recipes(program, graph.parameters)
    recipes = recipes_of(program)
    stored = [recipes.compute(index, {recipes.parameters[0]: array}) for index in range(len(operators))]
    base = Base(program, stored.__getitem__)
    return base, base.recipes.parameters[0], array


def rows(start: int, count: int, columns: int = 6) -> Slice:
    return Slice((start, 0), (count, columns), (1, 1))


def test_halves_make_a_whole() -> None:
    turned = Transpose((1, 0))
    for chains in (
        [[rows(0, 2)], [rows(2, 2)]],
        [[rows(0, 3), turned], [rows(2, 2)]],
        [[turned, Slice((0, 0), (3, 4), (1, 1)), Reshape((12,))], [turned, Slice((3, 0), (3, 4), (1, 1)), turned]],
        [[Slice((0, 0), (2, 6), (2, 1))], [Slice((3, 0), (2, 6), (-2, 1))]],
    ):
        base, value, array = compiled(*chains)
        assert base.knows(value)
        assert base.parameter(value).tobytes() == array.tobytes()
        base, value, _ = compiled(chains[0])
        assert not base.knows(value)


def test_recipes_of_strangers_end() -> None:
    """Long chains, and joins of joins of nothing."""
    base, value, array = compiled([Transpose((1, 0)), Reshape((4, 6))] * 700)
    assert base.parameter(value).tobytes() == array.tobytes()
    graph = Graph("g")
    nothing = Value("w", TensorType(F32, (0,)), origin=Origin("w"))
    made = nothing
    for _ in range(200):
        made = graph.make(Concat(0), [made, made]).output
    assert list(undone(made, np.empty(0, np.float32))) == []
