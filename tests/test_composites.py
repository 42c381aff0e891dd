"""Composites: what they are put together of, what they do on their way out, and that C makes what their expansions say."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from cpp_programs import PROGRAMS, arrays
from engine_fuzz.seeds import OTHERS, Tensors

from graphc.ggml_library import ggml
from graphc.ir.types import F32
from graphc.kernels.use import KernelUse
from graphc.ops.activations import Clip, LeakyRelu
from graphc.ops.pointwise import Unary
from graphc.targets.ggml.lowering.builder import Builder
from graphc.targets.ggml.lowering.compose import composed, expanded
from graphc.targets.ggml.program.composites import COMPOSITES
from graphc.targets.ggml.program.composites.composite import RAISED, RAISED_LAST, TAILS
from graphc.targets.ggml.program.program import Output, Program
from graphc.targets.ggml.program.sections import Section
from graphc.targets.ggml.program.tensor import ProgramError, Tensor
from graphc.targets.ggml.program.verify import check_signature
from graphc.targets.ggml.run.device.tensors import VIEW_OPS, address
from graphc.targets.ggml.run.executor import Executor
from graphc.targets.ggml.run.graph import most_tensors

ONE_CALL = ("tanh", "elu", "exp", "sin", "cos")
"""Activations that ggml calls as we do."""

BY_THEMSELVES = ("log", "sqrt")
"""Functions like them that nothing does on its way out."""

OWN = {
    "graphc_attention": ["attention"],
    "graphc_linear": ["mul_mat"],
    "graphc_gated_linear": ["mul_mat"],
    "graphc_scaled_linear": ["mul_mat"],
    "graphc_conv_2d": ["conv_2d"],
    "graphc_conv_3d": ["conv_2d"],
    "graphc_layer_norm": ["norm"],
    "graphc_rms_norm": ["norm"],
    "graphc_l2_norm": ["norm"],
    "graphc_group_norm": ["group_norm"],
    "graphc_conv_2d_dw": ["conv_2d_dw"],
    "graphc_conv_2d_last": ["conv_2d_last"],
    "graphc_expanded_conv_2d": ["expanded_conv_2d"],
    **{f"graphc_{name}": ["activate"] for name in ("relu", "sigmoid", "hard_swish", "gelu", "silu", "gate")},
    **{f"graphc_{name}": ["activate"] for name in (*ONE_CALL, *BY_THEMSELVES)},
    "graphc_add": ["broadcast"],
    **{f"graphc_{name}": ["broadcast"] for name in ("sub", "mul", "div")},
    "graphc_scaled_sum": ["scaled_sum"],
    "graphc_sum_rows": ["sum_rows"],
    "graphc_mean": ["sum_rows"],
    "graphc_soft_max": ["soft_max"],
    "graphc_sum_over_rows": ["sum_over_rows"],
    "graphc_mean_over_rows": ["sum_over_rows"],
    "graphc_rotary": ["rotary"],
    "graphc_copy": [],
    "graphc_concat": ["concat"],
    "graphc_pad": ["pad"],
    "graphc_repeat": ["repeat"],
    "graphc_upscale": ["upscale"],
    "graphc_average_pool": ["average_pool"],
    "graphc_cast": ["cast"],
}
"""The functions of `own` that compute each on the CPU; copies of few elements are ggml's."""

BY_ITSELF = {
    "ggml_mul_mat": "graphc_linear",
    "ggml_conv_2d": "graphc_conv_2d",
    "ggml_conv_2d_direct": "graphc_conv_2d",
    "ggml_conv_3d_direct": "graphc_conv_3d",
    "ggml_norm": "graphc_layer_norm",
    "ggml_rms_norm": "graphc_rms_norm",
    "ggml_l2_norm": "graphc_l2_norm",
    "ggml_group_norm": "graphc_group_norm",
    "ggml_conv_2d_dw_direct": "graphc_conv_2d_dw",
    "ggml_relu": "graphc_relu",
    "ggml_sigmoid": "graphc_sigmoid",
    "ggml_hardswish": "graphc_hard_swish",
    **{f"ggml_{name}": f"graphc_{name}" for name in (*ONE_CALL, *BY_THEMSELVES)},
    "ggml_sum_rows": "graphc_sum_rows",
    "ggml_sqr": "graphc_mul",
    "ggml_mean": "graphc_mean",
    "ggml_soft_max": "graphc_soft_max",
    "ggml_gelu_erf": "graphc_gelu",
    "ggml_silu": "graphc_silu",
    "ggml_cont": "graphc_copy",
    "ggml_concat": "graphc_concat",
    "ggml_pad_ext": "graphc_pad",
    "ggml_repeat_4d": "graphc_repeat",
    "ggml_interpolate": "graphc_upscale",
    "ggml_pool_2d": "graphc_average_pool",
    "ggml_cast": "graphc_cast",
}
"""The calls of ggml's that are composites by themselves."""

BROADCAST = {f"ggml_{name}": f"graphc_{name}" for name in ("add", "sub", "mul", "div")}
"""Those that are one where nothing before does them on its way out."""

ACTIVATIONS = {
    "relu": ("ggml_relu", ()),
    "sigmoid": ("ggml_sigmoid", ()),
    "hard_swish": ("ggml_hardswish", ()),
    **{name: (f"ggml_{name}", ()) for name in ONE_CALL},
    "gelu": ("ggml_gelu_erf", ()),
    "silu": ("ggml_silu", ()),
    "gate": ("graphc_gate", (None, 0.5, 0.1)),
    "clip": (Clip(-0.5, 0.75), ()),
    "leaky_relu": (LeakyRelu(0.1), ()),
    "mish": (Unary("Mish"), ()),
}
"""What is an activation of what is before it: a call, or an operator that a kernel computes."""

FIRST = {
    "graphc_linear": ("ggml_mul_mat", ("matrix", "flat")),
    "graphc_gated_linear": ("graphc_gated_linear", ("matrix", "many", "gate", False)),
    "graphc_scaled_linear": ("graphc_scaled_linear", ("whole", "flat", "scales", "shifts", False)),
    "graphc_conv_2d": ("ggml_conv_2d", ("kernel", "x", 1, 1, 1, 1, 1, 1)),
    "graphc_conv_3d": ("graphc_conv_3d", ("deep", "x", None, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 1, False)),
    "graphc_conv_2d_dw": ("ggml_conv_2d_dw_direct", ("each", "x", 1, 1, 1, 1, 1, 1)),
    "graphc_conv_2d_last": (
        "graphc_conv_2d_last",
        ("pixel_kernels", "pixels", "pixel", 1, 1, 1, 1, 2, 1, 1, 1, False, False),
    ),
    "graphc_expanded_conv_2d": (
        "graphc_expanded_conv_2d",
        ("widening", "narrow", "pixel", True, "pixel_kernels", None, 2, 1, 1, 1, 1, 2, 1, 1, False),
    ),
    "graphc_layer_norm": ("ggml_norm", ("x", 0.5)),
    "graphc_rms_norm": ("ggml_rms_norm", ("x", 0.5)),
    "graphc_group_norm": ("ggml_group_norm", ("x", 3, 0.5)),
    "graphc_scaled_sum": ("ggml_mul", ("x", "row")),
    "graphc_gelu": ("ggml_gelu_erf", ("x",)),
    "graphc_silu": ("ggml_silu", ("x",)),
    "graphc_gate": ("graphc_gate", ("x", None, 0.5, 0.1)),
    "graphc_rotary": ("graphc_rotary", ("x", "row", "row", None, True)),
    "graphc_concat": ("ggml_concat", ("x", "y", 1)),
}
"""How a program has each that does something on its way out."""

BEHIND = {
    ("graphc_linear", "ggml_add"): [("ggml_add", "matrix_sum"), ("ggml_add", "matrix_sum")],
    ("graphc_gated_linear", "ggml_add"): [("ggml_add", "number"), ("ggml_add", "number")],
    ("graphc_scaled_linear", "ggml_add"): [("ggml_add", "matrix_sum"), ("ggml_add", "matrix_sum")],
    ("graphc_conv_2d", "ggml_add"): [("ggml_add", "image_sum"), ("ggml_add", "image_sum")],
    ("graphc_conv_3d", "ggml_add"): [("ggml_add", "y"), ("ggml_add", "y")],
    ("graphc_conv_2d_dw", "ggml_add"): [("ggml_add", "channel"), ("ggml_add", "channel")],
    ("graphc_layer_norm", "ggml_mul"): [("ggml_mul", "row")],
    ("graphc_layer_norm", "ggml_add"): [("ggml_mul", "row"), ("ggml_add", "row")],
    ("graphc_rms_norm", "ggml_mul"): [("ggml_mul", "row")],
    ("graphc_rms_norm", "ggml_add"): [("ggml_mul", "row"), ("ggml_add", "row")],
    ("graphc_group_norm", "ggml_mul"): [("ggml_mul", "channel"), ("ggml_add", "channel")],
    ("graphc_group_norm", "ggml_add"): [("ggml_mul", "channel"), ("ggml_add", "channel")],
    ("graphc_group_norm", "graphc_silu"): [("ggml_mul", "channel"), ("ggml_add", "channel"), ("ggml_silu",)],
    ("graphc_gelu", "ggml_mul"): [("ggml_mul", "y")],
    ("graphc_silu", "ggml_mul"): [("ggml_mul", "y")],
    ("graphc_gate", "ggml_mul"): [("ggml_mul", "y")],
    ("graphc_rotary", "graphc_concat"): [("ggml_concat", "y", 0)],
    ("graphc_concat", "graphc_concat"): [("ggml_concat", "x", 1)],
}
"""What is behind it, a call after the other, that it then does."""


def built(function: str, args: tuple, behind: list[tuple], twice: bool = False) -> Program:
    """A program of a call and those behind it, whose first operand is what came before. `twice`: others read each too."""
    program = Program("some")
    tensors = Tensors(program)

    def given(arg):
        return getattr(tensors, arg) if isinstance(arg, str) else arg

    made = [tensors.builder.call(function, *map(given, args), rank=4)]
    for name, *more in behind:
        made.append(tensors.builder.call(name, made[-1], *map(given, more), rank=4))
    for index, each in enumerate(made if twice else made[-1:]):
        program.outputs.append(Output(f"y{index}", np.dtype(np.float32), each.shape, each))
    return program


def alone(function: str) -> Program:
    """A program of one call."""
    program = Program("some")
    tensors = Tensors(program)
    args = OTHERS[function](tensors) if function in OTHERS else (tensors.x,)
    result = tensors.builder.call(function, *args, rank=4)
    dtype = {"F32": np.float32, "F16": np.float16}[result.type]
    program.outputs.append(Output("y", np.dtype(dtype), result.shape, result))
    return program


def ran(program: Program, own: bool) -> list[np.ndarray]:
    """What it gives, by our own code or ggml's."""
    rng = np.random.default_rng(3)
    inputs = {each.name: np.abs(rng.standard_normal(each.shape)).astype(each.dtype) for each in program.inputs}
    executor = Executor(program, arrays(program), threads=2)
    executor.uses_own = own
    return executor.run(inputs, {})


def test_every_row_is_tested():
    assert BEHIND.keys() == TAILS.keys()
    assert OWN.keys() == COMPOSITES.keys()
    assert {function: name for function, (name, _) in RAISED.items()} == BY_ITSELF
    assert {function: name for function, (name, _) in RAISED_LAST.items()} == BROADCAST
    vectors = [name for name, each in COMPOSITES.items() if each.vectors]
    assert vectors == ["graphc_group_norm", "graphc_conv_2d", "graphc_conv_2d_dw"]


@pytest.mark.parametrize("row", BEHIND, ids=" ".join)
def test_a_composite_does_what_is_behind_it(row):
    program = built(*FIRST[row[0]], BEHIND[row])
    assert [call.function for call in composed(program).calls] == [row[0]]
    for own in (False, True):
        (found,), (*_, expected) = ran(program, own), ran(built(*FIRST[row[0]], BEHIND[row], twice=True), own)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    executor, met = met_by_own_code(program)
    assert all(node.contents.op == ggml.GGML_OP_CUSTOM for node in met), "ggml computes nothing of it"
    assert {executor.own.function_of(node) for node in met} - {""} == set(OWN[row[0]])


def met_by_own_code(program: Program) -> tuple[Executor, list]:
    """What is computed of a program by our own code."""
    executor = Executor(program, arrays(program), threads=2)
    with executor.context() as context:
        (section,) = executor.sections(executor.program)
        nodes = context.graph(executor.program, section, {}).placement.nodes
        return executor, [node for node in nodes if node.contents.op not in VIEW_OPS]


@pytest.mark.parametrize("row", BEHIND, ids=" ".join)
def test_it_does_not_where_others_read_it_too(row):
    program = built(*FIRST[row[0]], BEHIND[row], twice=True)
    assert len(composed(program).calls) == 1 + len(BEHIND[row])


def behind(name: str, function: str, sums: bool, twice: bool = False) -> Program:
    """An activation behind a composite, which may have added something before. `twice`: its result is read by others too."""
    program = Program("some")
    tensors = Tensors(program)
    call, args = FIRST[function]
    x = tensors.builder.call(call, *(getattr(tensors, a) if isinstance(a, str) else a for a in args), rank=4)
    if sums:
        ((call, other), *_) = BEHIND[function, "ggml_add"]
        x = tensors.builder.call(call, x, getattr(tensors, other), rank=4)
    what, args = ACTIVATIONS[name]
    if isinstance(what, str):
        found = tensors.builder.call(what, x, *args, rank=4)
    else:
        found = program.call_kernel(KernelUse(what, ((F32, x.shape),), F32, x.shape), [x])
    for index, each in enumerate([x, found] if twice else [found]):
        program.outputs.append(Output(f"y{index}", F32, each.shape, each))
    return program


TOLD = [name for name, each in COMPOSITES.items() if "activation" in each.parameters]
"""The composites that do activations."""


@pytest.mark.parametrize(
    ("function", "sums"),
    [(name, sums) for name in TOLD for sums in (False, True) if not sums or (name, "ggml_add") in BEHIND],
)
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_a_composite_has_an_activation(name, function, sums, monkeypatch):
    program = behind(name, function, sums)
    (call,) = composed(program).calls
    place = list(COMPOSITES[function].parameters).index("activation")
    assert (call.function, call.args[place].name) == (function, name)
    for own in (False, True):
        (found,), (_, expected) = ran(program, own), ran(behind(name, function, sums, twice=True), own)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=2e-6)
    _, met = met_by_own_code(program)
    assert len(met) == 1
    without = RAISED_LAST.get(FIRST[function][0], (function,))[0]
    assert [each.function for each in composed(program, activations=()).calls[:1]] == [without]
    monkeypatch.setattr("graphc.targets.ggml.run.executor.load_own", lambda: None)  # by expansions, and kernels
    (found,), (_, expected) = ran(program, False), ran(behind(name, function, sums, twice=True), False)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("other", [(6,), (2, 7, 7, 6), (1, 7, 7, 6)])
def test_rows_along_two_axes_are_multiplied_together(other):
    """[N, H, W, K] by a matrix: all rows of an image at once, unless what is added does not go with them."""
    program = Program("some")
    b = Builder(program)
    x, matrix = program.add_input("x", F32, (2, 7, 7, 40), "F32"), program.add_weight("matrix", F32, (6, 40))
    added = program.add_input("added", F32, other, "F32")
    y = b.unary("ggml_silu", b.binary("ggml_add", b.call("ggml_mul_mat", matrix, x, rank=4), added))
    program.outputs.append(Output("y", F32, y.shape, y))
    functions = [call.function for call in composed(program).calls]
    reshapes = {1: 1, 4: 2}[len(other)]
    together = ["ggml_reshape_3d"] * reshapes + ["graphc_linear", "ggml_reshape_4d"]
    assert functions == (["graphc_linear"] if other[0] == 1 else together)
    rng = np.random.default_rng(0)
    given = {each.name: rng.standard_normal(each.shape).astype(F32) for each in program.inputs}
    weight = rng.standard_normal((6, 40)).astype(F32)
    (found,) = Executor(program, [weight], threads=2).run(given, {})
    exact = given["x"].astype(np.float64) @ weight.T + given["added"]
    np.testing.assert_allclose(found, exact / (1 + np.exp(-exact)), rtol=1e-4, atol=1e-4)


def test_what_gates_something_is_no_activation():
    program = Program("some")
    tensors = Tensors(program)
    x = tensors.builder.call("ggml_mul_mat", tensors.matrix, tensors.flat, rank=2)
    gated = tensors.builder.call("ggml_mul", tensors.builder.call("ggml_silu", x, rank=2), tensors.matrix_sum, rank=2)
    program.outputs.append(Output("y", F32, gated.shape, gated))
    assert [call.function for call in composed(program).calls] == ["graphc_linear", "graphc_silu"]


@pytest.mark.parametrize("x", [np.nan, -0.0, 0.0, 6.0, np.inf, -np.inf, -1e-30, 7.0])
def test_activations_have_the_bits_of_kernels(x):
    """Of those that compare: with NaN, infinities and both zeros."""
    for op in (Clip(0.0, 6.0), Clip(None, 6.0), Clip(-1.0, None), LeakyRelu(0.1)):
        program = Program("some")
        b = Builder(program)
        given, one = program.add_input("x", F32, (40, 1), "F32"), program.add_weight("one", F32, (1, 1))
        product = b.call("ggml_mul_mat", one, given, rank=2)
        found = program.call_kernel(KernelUse(op, ((F32, (40, 1)),), F32, (40, 1)), [product])
        program.outputs.append(Output("y", F32, (40, 1), found))
        assert len(composed(program).calls) == 1
        executor = Executor(program, [np.ones((1, 1), np.float32)], threads=1)
        (y,) = executor.run({"x": np.full((40, 1), x, np.float32)}, {})
        (expected,) = op.eval(np.float32([[x + 0.0]]))  # a sum of products is no negative zero
        np.testing.assert_array_equal(y, np.broadcast_to(expected, y.shape))
        assert (np.signbit(y) == np.signbit(expected)).all() or np.isnan(x)


def test_what_is_behind_silu_is_not_taken_for_a_scale():
    program = built(*FIRST["graphc_group_norm"], [("ggml_silu",), ("ggml_mul", "channel")])
    assert [call.function for call in composed(program).calls] == ["graphc_group_norm", "graphc_mul"]


@pytest.mark.parametrize(
    ("function", "behind", "read"),
    [
        ("graphc_group_norm", [("ggml_mul", "given"), ("ggml_add", "given"), ("ggml_silu",)], ["vector", "vector"]),
        ("graphc_conv_2d", [("ggml_add", "given"), ("ggml_add", "image_sum")], ["bias", "image_sum"]),
        ("graphc_conv_2d", [("ggml_add", "image_sum"), ("ggml_add", "given")], ["image_sum"]),  # summed in this order
    ],
)
def test_a_composite_reads_vectors_along_channels(function, behind, read):
    """In place of those that were given the axes of an image for it, of which only reshapes of reshapes are left."""
    program = Program("some")
    tensors = Tensors(program)
    vector = tensors.bias if "conv" in function else tensors.vector
    given = tensors.builder.call("ggml_reshape_2d", vector, 1, vector.ne[0], rank=2)
    tensors.given = tensors.builder.call("ggml_reshape_4d", given, 1, 1, vector.ne[0], 1, rank=4)
    name, args = FIRST[function]
    result = tensors.builder.call(name, *(getattr(tensors, a) if isinstance(a, str) else a for a in args), rank=4)
    for name, *more in behind:
        result = tensors.builder.call(name, result, *(getattr(tensors, a) for a in more), rank=4)
    program.outputs.append(Output("y", np.dtype(np.float32), result.shape, result))
    *before, last = composed(program).calls
    assert last.function == function
    weights = [arg.weight for arg in last.args[2 if "conv" in function else 1 :] if isinstance(arg, Tensor)]
    assert [program.weights[each].name for each in weights if each >= 0] == read
    assert [call.function for call in before] == ["ggml_reshape_4d"] * (read[0] == "image_sum")
    (found,), (expected,) = ran(program, True), ran(program, False)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("function", "place"), [("graphc_conv_2d_last", 2), ("graphc_expanded_conv_2d", 2), ("graphc_expanded_conv_2d", 5)]
)
def test_images_with_channels_last_have_a_vector_added(function, place):
    """Of what an image could have added, our own code would read the first numbers alone."""
    program = Program("some")
    tensors = Tensors(program)
    name, args = FIRST[function]
    given = [getattr(tensors, a) if isinstance(a, str) else a for a in args]
    tensors.builder.call(name, *given, rank=4)
    given[place] = program.add_weight("image", F32, (1, 1, 10, 20))
    with pytest.raises(ProgramError, match="in the place of a vector"):
        tensors.builder.call(name, *given, rank=4)


def test_sizes_that_are_given_back_need_no_call():
    program = Program("some")
    b = Builder(program)
    x = program.add_input("x", np.dtype(np.float32), (2, 3, 4, 5), "F32")
    flat = b.reshape(x, (*x.shape[:-2], x.shape[-2] * x.shape[-1]))
    result = b.unary("ggml_neg", b.reshape(flat, x.shape))
    program.outputs.append(Output("y", np.dtype(np.float32), result.shape, result))
    assert [call.function for call in program.calls] == ["ggml_reshape_3d", "ggml_reshape_4d", "ggml_neg"]
    assert [call.function for call in composed(program).calls] == ["ggml_neg"]


@pytest.mark.parametrize("function", BY_ITSELF)
def test_what_is_a_composite_by_itself(function):
    program = alone(function)
    result, last = program.calls[-1].result, composed(program).calls[-1]
    assert last.function == BY_ITSELF[function]
    assert (last.result.ne, last.result.nb) == (result.ne, result.nb)


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("function", COMPOSITES)
def test_c_makes_what_the_expansion_says(function, own):
    """By ggml's calls the same ones, with the same sources; by our code its function."""
    program = alone(function)
    executor = Executor(program, arrays(program), threads=2)
    executor.uses_own = own
    with executor.context() as context:
        (section,) = executor.sections(executor.program)
        by_c = context.graph(executor.program, section, {})
        if own:
            wide = function == "graphc_attention"  # few queries are left to products
            met = {executor.own.function_of(node) for node in by_c.placement.nodes}
            assert met >= (set() if wide else set(OWN[function]))
            return
        made = described(by_c)
        context.forget()
        executor.own = None
        assert made == described(context.graph(executor.program, section, {}))


def test_attention_reads_values_where_they_lie():
    """A copy of them in another order would give the same numbers."""
    b = Builder(Program("some"))
    q, k, v = (b.program.add_input(name, np.dtype(np.float32), (1, 2, 64, 8), "F32") for name in "qkv")
    result = b.call("graphc_attention", q, k, v, None, 0.5, rank=4)
    b.program.outputs.append(Output("y", np.dtype(np.float32), result.shape, result))
    executor, (node,) = met_by_own_code(b.program)
    assert executor.own.function_of(node) == "attention"


def described(graph) -> Counter:
    """Each node's operator, its sizes and settings, and those of what it reads."""

    def shown(tensor):
        ne = tuple(tensor.contents.ne)
        return ggml.ggml_op_desc(tensor).decode(), ne, tuple(tensor.contents.nb)

    nodes = [ggml.ggml_graph_node(graph.graph, index) for index in range(ggml.ggml_graph_n_nodes(graph.graph))]
    return Counter(
        (shown(node), tuple(node.contents.op_params), tuple(shown(each) for each in node.contents.src if each))
        for node in nodes
    )


@pytest.mark.parametrize("function", COMPOSITES)
def test_a_file_may_have_each(function):
    for call in alone(function).calls:
        check_signature(call.function, call.args)


@pytest.mark.parametrize("function", COMPOSITES)
def test_what_no_file_of_c_builds_is_its_expansion_in_cpp(function):
    program = composed(alone(function))
    plain = expanded(program, ())
    assert not COMPOSITES.keys() & {call.function for call in plain.calls}
    assert [each.tensor.shape for each in plain.outputs] == [each.tensor.shape for each in program.outputs]
    for found, expected in zip(ran(plain, False), ran(program, False), strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("name", [*COMPOSITES, *PROGRAMS])
def test_a_graph_has_no_more_tensors_than_are_reserved(name, own):
    """ggml ends the process where a context is full, or a scheduler meets more tensors than it was told of."""
    program = alone(name) if name in COMPOSITES else PROGRAMS[name]()
    executor = Executor(program, arrays(program), threads=2)
    executor.uses_own = own
    with executor.context() as context:
        for section in executor.sections(executor.program):
            if isinstance(section, Section) and not section.symbols - {"n", "batch", "tokens", "height", "width"}:
                graph = context.graph(executor.program, section, dict.fromkeys(section.symbols, 16))
                met = set[int]()
                for node in graph.placement.nodes:
                    for each in (node, *filter(None, node.contents.src)):
                        met |= {address(each), address(each.contents.view_src or each)}
                assert len(met) <= most_tensors(executor.program)


@pytest.mark.parametrize(("sizes", "turned"), [((1, 8), False), ((8, 1), False), ((8, 8), True)])
def test_masks_that_have_no_number_for_each_score_are_refused(sizes, turned):
    """Our own code reads them where they lie."""
    program = Program("some")
    b = Builder(program)
    q, k, v = (program.add_input(name, F32, (2, 3, 8, 10), "F32") for name in "qkv")
    mask, other = program.add_input("mask", F32, (8, 8), "F32"), program.add_input("other", F32, sizes, "F32")
    other = b.call("ggml_permute", other, 1, 0, 2, 3, rank=4) if turned else other
    with pytest.raises(ProgramError, match="a number for each score"):
        b.call("graphc_attention", q, k, v, mask, 0.5, other, rank=4)
    with pytest.raises(ProgramError, match="not the first"):
        b.call("graphc_attention", q, k, v, None, 0.5, mask, rank=4)
    with pytest.raises(ProgramError, match="5 masks"):
        b.call("graphc_attention", q, k, v, mask, 0.5, *[mask] * 5, rank=4)
