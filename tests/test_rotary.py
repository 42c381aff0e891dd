"""Rotary embeddings: the operator, how exporters spell it, and ONNX's and onnxruntime's own."""

from __future__ import annotations

import numpy as np
import pytest
from operators import by_eval, close, defined, on_ggml

from graphc.errors import ShapeError
from graphc.graph_text import parse_graph
from graphc.ir import interp
from graphc.ir.types import BF16, F16, F32, F64, I64, TensorType
from graphc.ops.rotary import RotaryEmbedding
from graphc.optimize import optimize
from graphc.rewrite.engine import Log
from graphc.targets.ggml.lowering.lower import lower

USES = {
    "a head": ((5, 8), (5, 8)),
    "heads before the rows": ((2, 3, 5, 8), (5, 8)),
    "heads behind the rows": ((2, 5, 3, 8), (1, 5, 1, 8)),
    "a part of each row": ((2, 3, 5, 12), (2, 1, 5, 8)),
    "six axes": ((1, 2, 1, 3, 2, 6), (3, 1, 6)),
}


def operands(x: tuple[int, ...], cos: tuple[int, ...], dtype: np.dtype = F32) -> list[np.ndarray]:
    random = np.random.default_rng(5)
    return [random.standard_normal(shape).astype(dtype) for shape in (x, cos, cos)]


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("use", USES)
def test_the_definition_and_ggml_compute_it(use, interleaved):
    op, arrays = RotaryEmbedding(interleaved), operands(*USES[use])
    expected = by_eval(op, *arrays)
    close(defined(op, *arrays), expected)
    close(on_ggml(op, *arrays)[0], expected)


def test_what_it_is():
    x, cos, sin = operands((1, 4), (1, 4))
    (a, b, c, d), (e, f, g, h), (i, j, k, m) = (each[0] for each in (x, cos, sin))
    close(
        by_eval(RotaryEmbedding(True), x, cos, sin)[0],
        np.array([a * e + b * i, b * f + a * j, c * g + d * k, d * h + c * m]),
    )
    close(
        by_eval(RotaryEmbedding(False), x, cos, sin)[0],
        np.array([a * e + c * i, b * f + d * j, c * g + a * k, d * h + b * m]),
    )


@pytest.mark.parametrize("dtype", [F16, BF16, F64], ids=str)
def test_other_types(dtype):
    arrays = operands((3, 5, 8), (5, 6), dtype)
    for op in (RotaryEmbedding(False), RotaryEmbedding(True)):
        close(on_ggml(op, *arrays)[0], by_eval(op, *arrays))


@pytest.mark.parametrize("shapes", [((5, 8), (5, 7), (5, 7)), ((5, 8), (5, 10), (5, 10)), ((5, 8), (4, 8), (4, 8)),
                                    ((5, 8), (5, 8), (5, 6)), ((5, 8), (), ()), ((5, 8), (2, 5, 8), (2, 5, 8))])  # fmt: skip
def test_what_does_not_fit_is_an_error(shapes):
    with pytest.raises(ShapeError):
        RotaryEmbedding(False).infer(*(TensorType(F32, shape) for shape in shapes))
    with pytest.raises(ShapeError):
        RotaryEmbedding(False).infer(*[TensorType(I64, (5, 8))] * 3)


ANGLES = "%cos: float32[5, 1, 8], %sin: float32[5, 1, 8], %c: float32[5, 1, 4], %s: float32[5, 1, 4]"
HEAD = f"graph g(%p: float32[1, 5, 24], {ANGLES})"
WHOLE = "\n  %x = Reshape[shape=(1, 5, 3, 8)](%p)"
SUM = """
        %u = Mul(%t, %sin)
        %v = Mul(%x, %cos)
        %y = Add(%v, %u)
        return y=%y"""
PARTS = """
        %ac = Mul(%a, %c)
        %bs = Mul(%b, %s)
        %bc = Mul(%b, %c)
        %as = Mul(%a, %s)
        %first = Sub(%ac, %bs)
        %second = Add(%bc, %as)"""
FOUR = "sizes=(1, 5, 3, 4), steps=(1, 1, 1, 1)"
EVERY = "sizes=(1, 5, 3, 4), steps=(1, 1, 1, 2)"

SPELLINGS = {
    "rotate_half": HEAD + WHOLE + f"""
        %a = Slice[starts=(0, 0, 0, 0), {FOUR}](%x)
        %b = Slice[starts=(0, 0, 0, 4), {FOUR}](%x)
        %n = Neg(%b)
        %t = Concat[axis=3](%n, %a)""" + SUM,
    "pairs, unbound": HEAD + WHOLE + """
        %r = Reshape[shape=(1, 5, 3, 4, 2)](%p)
        %a = Slice[starts=(0, 0, 0, 0, 0), sizes=(1, 5, 3, 4, 1), steps=(1, 1, 1, 1, 1)](%r)
        %b = Slice[starts=(0, 0, 0, 0, 1), sizes=(1, 5, 3, 4, 1), steps=(1, 1, 1, 1, 1)](%r)
        %c4 = Reshape[shape=(1, 5, 3, 4)](%b)
        %n = Neg(%c4)
        %m = Reshape[shape=(1, 5, 3, 4, 1)](%n)
        %j = Concat[axis=4](%m, %a)
        %t = Reshape[shape=(1, 5, 3, 8)](%j)""" + SUM,
    "halves, unbound": HEAD + WHOLE + """
        %r = Reshape[shape=(1, 5, 3, 2, 4)](%x)
        %a = Slice[starts=(0, 0, 0, 0, 0), sizes=(1, 5, 3, 1, 4), steps=(1, 1, 1, 1, 1)](%r)
        %b = Slice[starts=(0, 0, 0, 1, 0), sizes=(1, 5, 3, 1, 4), steps=(1, 1, 1, 1, 1)](%r)
        %a4 = Reshape[shape=(1, 5, 3, 4)](%a)
        %b4 = Reshape[shape=(1, 5, 3, 4)](%b)
        %n = Neg(%b4)
        %t = Concat[axis=3](%n, %a4)""" + SUM,
    "every other": HEAD + WHOLE + f"""
        %a = Slice[starts=(0, 0, 0, 0), {EVERY}](%x)
        %b = Slice[starts=(0, 0, 0, 1), {EVERY}](%x)
        %n = Neg(%b)
        %a1 = Reshape[shape=(1, 5, 3, 4, 1)](%a)
        %n1 = Reshape[shape=(1, 5, 3, 4, 1)](%n)
        %j = Concat[axis=4](%n1, %a1)
        %t = Reshape[shape=(1, 5, 3, 8)](%j)""" + SUM,
    "products of halves": HEAD + WHOLE + f"""
        %a = Slice[starts=(0, 0, 0, 0), {FOUR}](%x)
        %b = Slice[starts=(0, 0, 0, 4), {FOUR}](%x)""" + PARTS + """
        %y = Concat[axis=3](%first, %second)
        return y=%y""",
    "products of pairs": HEAD + """
        %r = Reshape[shape=(1, 5, 3, 4, 2)](%p)
        %a5 = Slice[starts=(0, 0, 0, 0, 0), sizes=(1, 5, 3, 4, 1), steps=(1, 1, 1, 1, 1)](%r)
        %b5 = Slice[starts=(0, 0, 0, 0, 1), sizes=(1, 5, 3, 4, 1), steps=(1, 1, 1, 1, 1)](%r)
        %a = Reshape[shape=(1, 5, 3, 4)](%a5)
        %b = Reshape[shape=(1, 5, 3, 4)](%b5)""" + PARTS + """
        %f1 = Reshape[shape=(1, 5, 3, 4, 1)](%first)
        %s1 = Reshape[shape=(1, 5, 3, 4, 1)](%second)
        %j = Concat[axis=4](%f1, %s1)
        %y = Reshape[shape=(1, 5, 3, 8)](%j)
        return y=%y""",
    "of a part of each row": f"graph g(%p: float32[1, 5, 36], {ANGLES})" + f"""
        %h = Reshape[shape=(1, 5, 3, 12)](%p)
        %x = Slice[starts=(0, 0, 0, 0), sizes=(1, 5, 3, 8), steps=(1, 1, 1, 1)](%h)
        %z = Slice[starts=(0, 0, 0, 8), {FOUR}](%h)
        %a = Slice[starts=(0, 0, 0, 0), {FOUR}](%x)
        %b = Slice[starts=(0, 0, 0, 4), {FOUR}](%x)
        %n = Neg(%b)
        %t = Concat[axis=3](%n, %a)
        %u = Mul(%t, %sin)
        %v = Mul(%x, %cos)
        %w = Add(%v, %u)
        %y = Concat[axis=3](%w, %z)
        return y=%y""",
}  # fmt: skip
"""As exporters write them: of diffusers' and transformers' models, and of what is written by hand."""


def numbers(graph):
    random = np.random.default_rng(7)
    return {value.name: random.standard_normal(value.shape).astype(F32) for value in graph.inputs}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_spellings_are_raised_and_keep_the_numbers(spelling):
    graph, stages = parse_graph(SPELLINGS[spelling]), {}
    inputs = numbers(graph)
    expected = interp.run(graph, inputs)["y"]
    optimize(graph, Log(), lambda stage, graph: stages.update({stage: [node.op.name for node in graph.nodes]}))
    assert set(stages["raise"]) <= {"RotaryEmbedding", "Reshape", "Concat", "Neg", "Mul"}
    assert stages["raise"].count("RotaryEmbedding") == 1
    assert all(len(value.shape) <= 4 for node in graph.nodes for value in node.outputs)
    assert "ggml_cont" not in [call.function for call in lower(graph).calls]
    close(interp.run(graph, inputs)["y"], expected)


@pytest.mark.parametrize(
    ("text", "other"),
    [
        ("Neg(%b)", "Abs(%b)"),
        ("axis=3](%n, %a)", "axis=3](%a, %n)"),
        ("starts=(0, 0, 0, 4)", "starts=(0, 0, 0, 3)"),
        ("Mul(%x, %cos)", "Mul(%cos, %cos2)"),
        ("%cos: float32[5, 1, 8]", "%cos: float32[2, 5, 1, 8]"),
    ],
)
def test_what_only_looks_alike_is_left_alone(text, other):
    written = (
        SPELLINGS["rotate_half"].replace(text, other).replace("%c: float32[5, 1, 4]", "%cos2: float32[1, 5, 3, 8]")
    )
    graph, log = parse_graph(written), Log()
    inputs = numbers(graph)
    expected = interp.run(graph, inputs)["y"]
    optimize(graph, log)
    assert not log.fired["rotary"]
    assert [reason for rule, _, reason in log.refused if rule == "rotary"]
    close(interp.run(graph, inputs)["y"], expected)
