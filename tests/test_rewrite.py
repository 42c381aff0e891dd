"""Rules, on the text form of graphs: which fires, what it makes, and that the numbers stay."""

from importlib import import_module
from pkgutil import iter_modules

import numpy as np
import pytest
from operators import close
from rule_graphs import ATTENTIONS, CONV, FIRES, MASKS, NO_ATTENTIONS, REFUSES

from graphc.errors import InputError
from graphc.graph_text import parse_graph
from graphc.ir import interp
from graphc.ir.graph import Graph
from graphc.ir.types import F32, TensorType
from graphc.ir.verify import verify
from graphc.ops.functions import UNARY
from graphc.ops.pointwise import Binary, Unary, Where
from graphc.optimize import RAISE, SIMPLIFY, STAGES, Stage, checked, explained, names, optimize
from graphc.passes.common import common
from graphc.rewrite import rules
from graphc.rewrite.engine import Log, Rule, rewrite, rule
from graphc.rewrite.pattern import Apply, Number
from graphc.rewrite.pattern import parse as parse_pattern
from graphc.rewrite.rules import rules_for
from graphc.runtime.bisect import bisect

RULES = {rule.name: rule for rule in [*RAISE, *SIMPLIFY]}


def random_inputs(graph):
    random = np.random.default_rng(7)
    numbers = {value.name: random.standard_normal(value.shape) for value in graph.inputs}
    return {
        value.name: numbers[value.name] > -1 if value.dtype == bool else numbers[value.name].astype(value.dtype)
        for value in graph.inputs
    }


def test_every_rule_of_a_module_is_in_a_stage():
    """A module that calls a purpose by another name than `optimize.py` would have rules that nobody applies."""
    used = {id(each) for stage in STAGES if not callable(stage.work) for each in stage.work}
    for info in iter_modules(rules.__path__, f"{rules.__name__}."):
        made = [each for each in vars(import_module(info.name)).values() if isinstance(each, Rule)]
        assert made
        assert [each.name for each in made if id(each) not in used] == []


def test_every_rule_has_a_graph_on_which_it_fires():
    assert set(FIRES) == set(RULES)


@pytest.mark.parametrize("name", sorted(FIRES))
def test_a_rule_fires_and_keeps_the_numbers(name):
    graph = parse_graph(FIRES[name])
    inputs = random_inputs(graph)
    expected = interp.run(graph, inputs)
    log = Log()
    assert rewrite(graph, [RULES[name]], log)
    verify(graph)
    assert log.fired[name] >= 1
    for output, array in interp.run(graph, inputs).items():
        np.testing.assert_allclose(array, expected[output], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", sorted(REFUSES))
def test_a_rule_refuses_with_a_reason(name):
    graph = parse_graph(REFUSES[name])
    before, log = str(graph), Log()
    assert not rewrite(graph, [RULES[name]], log)
    assert str(graph) == before
    assert any(rule == name and reason for rule, _, reason in log.refused)


@pytest.mark.parametrize("name", sorted(FIRES))
def test_the_whole_optimizer_keeps_the_numbers(name):
    graph = parse_graph(FIRES[name])
    inputs = random_inputs(graph)
    expected = interp.run(graph, inputs)
    optimize(graph)
    verify(graph)
    for output, array in interp.run(graph, inputs).items():
        np.testing.assert_allclose(array, expected[output], rtol=1e-5, atol=1e-6)


def test_a_rewritten_value_keeps_its_name():
    graph = parse_graph(FIRES["silu"])
    rewrite(graph, [RULES["silu"]])
    assert graph.nodes[-1].output.name == "y"


def test_the_text_of_a_graph_is_read_back():
    graph = parse_graph(FIRES["group_norm_bias"])
    assert str(parse_graph(str(graph))) == str(graph)


@pytest.mark.parametrize(
    "text", ["x", "Mul(x, *y)", "Conv(x, *w, bias)", "Relu(*Exp(x))", "lambda: 0", "Mul(x, key=1)"]
)
def test_what_is_not_a_pattern_is_refused(text):
    with pytest.raises(ValueError):  # noqa: PT011
        rule(text)(lambda emit, x: x)


@pytest.mark.parametrize("operands", ["%x", "%x, %scale", "%x, %scale, %bias"])
def test_an_operand_may_be_missing(operands):
    graph = parse_graph(f"""graph g(%x: float32[2, 4], %scale: float32[4], %bias: float32[4])
        %y = LayerNorm[axis=1, epsilon=1e-05]({operands})
        return y=%y""")
    (found,) = parse_pattern("LayerNorm(x, *scale, *bias)").match(graph.outputs[0], {})
    assert [f"%{name}" for name in found] == operands.split(", ")
    assert len(list(parse_pattern("LayerNorm(x, scale, *bias)").match(graph.outputs[0], {}))) == ("scale" in operands)


def test_a_pattern_with_a_repeated_name_needs_one_value():
    graph = parse_graph("""graph g(%x: float32[2], %y: float32[2])
        %s = Sigmoid(%x)
        %z = Mul(%s, %y)
        return z=%z""")
    pattern = parse_pattern("Mul(x, Sigmoid(x))")
    assert not list(pattern.match(graph.outputs[0], {}))


def test_attention_in_three_axes_with_the_scale_on_the_scores():
    graph = parse_graph("""graph g(%q: float32[6, 5, 4], %k: float32[6, 7, 4], %v: float32[6, 7, 4])
        %two: float32[] = constant(2.0)
        %m = MatMul[transpose_b=True](%q, %k)
        %x = Div(%m, %two)
        %s = Softmax[axis=2](%x)
        %y = MatMul(%s, %v)
        return y=%y""")
    inputs = random_inputs(graph)
    expected = interp.run(graph, inputs)["y"]
    optimize(graph)
    assert "Attention" in [node.op.name for node in graph.nodes]
    np.testing.assert_allclose(interp.run(graph, inputs)["y"], expected, rtol=1e-5, atol=1e-6)


MIXED = """graph g(%x: float32[2, 3], %q: float32[1, 3, 5, 4])
    %two: float32[] = constant(2.0)
    %three = Mul(%two, %two)
    %s = Sigmoid(%x)
    %a = Mul(%s, %x)
    %t = Tanh(%a)
    %b = Mul(%t, %three)
    %u = Sigmoid(%b)
    %c = Mul(%b, %u)
    return y=%c"""


@pytest.mark.parametrize("name", names())
def test_what_is_left_out_is_not_applied(name):
    log = Log(without=checked([name]))
    optimize(parse_graph(FIRES.get(name, MIXED)), log)
    assert name not in log.fired


def test_a_wrong_name_is_refused_with_all_names():
    with pytest.raises(InputError, match=r"no rule or pass is called silo; there are .*silu.*schedule"):
        checked(["silu", "silo"])


def test_after_the_limit_nothing_is_applied():
    whole = Log()
    optimize(parse_graph(MIXED), whole)
    assert whole.fired["silu"] == 2
    texts = []
    for limit in range(len(whole.steps) + 1):
        graph, log = parse_graph(MIXED), Log(limit=limit)
        optimize(graph, log)
        verify(graph)
        assert log.steps == whole.steps[:limit]
        texts.append(str(graph))
    assert texts[0] == str(parse_graph(MIXED))
    assert sum("Silu" in text for text in texts) == len(texts) - [step.name for step in whole.steps].index("silu") - 1


@rule("Tanh(x)")
def wrong_tanh(emit, x):
    """Not so."""
    return emit(Unary("Sin"), x)


def run_graph(graph):
    return interp.run(graph, random_inputs(graph))


SPELT = ("square", "reciprocal", "silu", "sigmoid", "mish", "gelu", "gelu_tanh")


def graph_of(pattern):
    """The graph that a pattern of functions describes, with the name of what it should become."""
    graph = Graph()
    x = graph.input("x", TensorType(np.dtype(np.float32), (2, 3)))

    def build(part):
        if isinstance(part, Apply):
            op = Unary(part.operator) if part.operator in UNARY else Binary(part.operator)
            return graph.add(op, [build(arg) for arg in part.args]).output
        return graph.constant(np.float32(part.number).reshape(())) if isinstance(part, Number) else x

    graph.output(build(pattern), "y")
    return graph


@pytest.mark.parametrize("name", SPELT)
def test_every_spelling_is_one_operator_in_the_end(name):
    for pattern in RULES[name].patterns:
        graph = graph_of(pattern)
        expected = run_graph(graph)["y"]
        log = Log()
        optimize(graph, log)
        assert log.fired[name] == 1, pattern
        assert len(graph.nodes) == 1, pattern
        np.testing.assert_allclose(run_graph(graph)["y"], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("spelling", ATTENTIONS)
def test_attention_in_all_its_spellings(spelling):
    graph = parse_graph(ATTENTIONS[spelling])
    expected = run_graph(graph)["y"]
    optimize(graph)
    verify(graph)
    assert "Attention" in [node.op.name for node in graph.nodes]
    assert not {"Softmax", "IsNaN"} & {node.op.name for node in graph.nodes}
    np.testing.assert_allclose(run_graph(graph)["y"], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("most", "masks"), [(2 * 3 * 5 * 7 * 4, 1), (2 * 3 * 5 * 7 * 4 - 1, 2)])
def test_masks_that_would_be_large_together_stay_apart(most, masks, monkeypatch):
    monkeypatch.setattr("graphc.rewrite.rules.attention.MOST_JOINED", most)
    text = ATTENTIONS["a scale for each head, and a mask for each window"]
    given, made = text.split("\n", 1)
    given = given.replace(f", {MASKS}", "")
    constants = "".join(f"        {each} = constant\n" for each in MASKS.replace(", %", ";%").split(";"))
    graph = parse_graph(f"{given}\n{constants}{made}")
    expected = run_graph(graph)["y"]
    optimize(graph)
    verify(graph)
    (attention,) = [node for node in graph.nodes if node.op.name == "Attention"]
    assert len(attention.inputs) == 3 + masks
    np.testing.assert_allclose(run_graph(graph)["y"], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("spelling", NO_ATTENTIONS)
def test_what_is_no_attention_is_left_alone(spelling):
    graph = parse_graph(NO_ATTENTIONS[spelling])
    log = Log()
    optimize(graph, log)
    assert not log.fired["attention"]
    assert [reason for rule, _, reason in log.refused if rule == "attention"]


def test_a_row_that_a_mask_excludes_wholly_is_zero():
    graph = parse_graph(FIRES["guarded_attention"])
    inputs = random_inputs(graph)
    inputs["c"][1, 0, 2] = False
    expected = interp.run(graph, inputs)["y"]
    assert not expected[1, :, 2].any()
    optimize(graph)
    assert "IsNaN" not in str(graph)
    np.testing.assert_allclose(interp.run(graph, inputs)["y"], expected, rtol=1e-5, atol=1e-6)


def test_what_is_computed_twice_is_computed_once():
    graph = parse_graph("""graph g(%x: float32[2, 3], %z: float32[2, 3])
        %one: float32[] = constant(1.0)
        %same: float32[] = constant(1.0)
        %zero: float32[] = constant(0.0)
        %a = Add(%x, %one)
        %b = Add(%same, %x)
        %c = Mul(%a, %z)
        %d = Mul(%z, %b)
        %e = Sub(%c, %z)
        %f = Sub(%z, %c)
        %p = Pad[before=(0, 1), after=(0, 0), value=0.0](%d)
        %n = Pad[before=(0, 1), after=(0, 0), value=-0.0](%d)
        return c=%c, d=%d, e=%e, f=%f, p=%p, n=%n""")
    expected = run_graph(graph)
    common(graph)
    verify(graph)
    assert [node.op.name for node in graph.nodes] == ["Add", "Mul", "Sub", "Sub", "Pad", "Pad"]
    assert graph.outputs[0] is graph.outputs[1]
    for name, array in run_graph(graph).items():
        np.testing.assert_array_equal(array, expected[name])
        np.testing.assert_array_equal(np.signbit(array), np.signbit(expected[name]))


def test_streams_of_random_numbers_and_the_hosts_work_stay_apart():
    settings = "start=0.0, scale=1.0, dtype=float32, shape=(2, 3)"
    graph = parse_graph(f"""graph g(%n: int64[1])
        %a = Measure[size=k, what='k'](%n)
        %b = Measure[size=k, what='k'](%n)
        %r = Random[kind='normal', stream=1, {settings}]()
        %s = Random[kind='normal', stream=2, {settings}]()
        %t = Random[kind='normal', stream=1, {settings}]()
        return a=%a, b=%b, r=%r, s=%s, t=%t""")
    common(graph)
    assert [node.op.name for node in graph.nodes] == ["Measure", "Measure", "Random", "Random"]
    assert graph.outputs[2] is graph.outputs[4]


def test_bisection_finds_the_rule_that_is_wrong(monkeypatch):
    assert bisect(lambda: parse_graph(MIXED), run_graph, 1e-5)[1] is None
    folded = [stage.name for stage in STAGES].index("fold") + 1
    stages = [*STAGES[:folded], Stage("wrong", [wrong_tanh]), *STAGES[folded:]]
    monkeypatch.setattr("graphc.optimize.STAGES", stages)
    total, found = bisect(lambda: parse_graph(MIXED), run_graph, 1e-5)
    assert found.step.name == "wrong_tanh"
    assert found.before <= 1e-5 < found.after
    assert 1 < found.number < total
    assert [line for line in found.changed if line[0] in "+-"] == [
        "-  %t: float32[2, 3] = Tanh(%a)",
        "+  %t: float32[2, 3] = Sin(%a)",
    ]


def test_an_explanation_says_what_was_there_instead():
    graph = parse_graph("""graph g(%x: float32[2, 3], %y: float32[2, 3])
        %root: float32[] = constant(1.5)
        %one: float32[] = constant(1.0)
        %half: float32[] = constant(0.5)
        %d = Div(%x, %root)
        %e = Erf(%d)
        %a = Add(%e, %one)
        %m = Mul(%x, %a)
        %y = Mul(%m, %half)
        return y=%y""")
    found = explained("gelu", graph)
    assert not found.fired
    (miss,) = found.missed
    assert (miss.matched, miss.size) == (7, 8)
    assert miss.reason == "expected the number 1.41421, found the constant 1.5"


def test_an_explanation_has_what_fired_and_what_was_refused():
    fired = explained("silu", parse_graph(MIXED))
    assert len(fired.fired) == 2
    refused = explained("softmax_guard", parse_graph(REFUSES["softmax_guard"]))
    assert refused.refused["the mask is computed when the model is run"] == [""]
    assert not refused.fired
    with pytest.raises(InputError, match="no rule is called fold"):
        explained("fold", parse_graph(MIXED))


def test_a_batch_normalization_is_in_the_convolution_before_it():
    graph = parse_graph(f"""graph g(%x: float32[2, 4, 5, 5])
        %w: float32[6, 4, 3, 3] = constant
        %scale: float32[6] = constant
        %bias: float32[6] = constant
        %mean: float32[6] = constant
        %variance: float32[6] = constant(0.7)
        %c = Conv[{CONV}](%x, %w)
        %y = BatchNorm[epsilon=1e-05](%c, %scale, %bias, %mean, %variance)
        return y=%y""")
    expected = run_graph(graph)["y"]
    optimize(graph)
    assert [node.op.name for node in graph.nodes] == ["Conv"]
    np.testing.assert_allclose(run_graph(graph)["y"], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("transposed", [False, True])
def test_a_product_with_joined_rows_is_the_sum_of_two(transposed):
    rows, columns = (256, 1024) if transposed else (1024, 256)
    graph = parse_graph(f"""graph g(%x: float32[3, 768], %z: float32[3, 256])
        %w: float32[{rows}, {columns}] = constant
        %c = Concat[axis=1](%x, %z)
        %y = MatMul[transpose_b={transposed}](%c, %w)
        return y=%y""")
    inputs = random_inputs(graph)
    expected = interp.run(graph, inputs)["y"]
    optimize(graph)
    assert [node.op.name for node in graph.nodes if not node.output.static] == ["MatMul", "MatMul", "Add"]
    close(interp.run(graph, inputs)["y"], expected)


def test_rules_that_undo_each_other_are_an_error_and_no_hang():
    @rule("Sin(x)")
    def forth(emit, x):
        return emit(Unary("Cos"), x)

    @rule("Cos(x)")
    def back(emit, x):
        return emit(Unary("Sin"), x)

    graph = parse_graph("graph g(%x: float32[2])\n  %y = Sin(%x)\n  return y=%y")
    with pytest.raises(AssertionError, match=r"rules without end: back, forth|rules without end: forth, back"):
        rewrite(graph, [forth, back])


REVERSED = """graph g(%x: float32[2, 5, 3, 4, 6])
    %t = Transpose[perm=(2, 0, 3, 1, 4)](%x)
    %r = Reshape[shape=(3, 8, 5, 6)](%t)
    %a = Slice[starts=(1, 7, 0, 0), sizes=(1, 8, 5, 6), steps=(1, -1, 1, 1)](%r)
    %b = Slice[starts=(0, 4, 2, 0, 0), sizes=(2, 5, 1, 4, 6), steps=(1, -1, 1, 1, 1)](%x)
    %c = Slice[starts=(0, 0, 0, 3, 1), sizes=(2, 5, 3, 4, 3), steps=(1, 1, 1, -1, 1)](%x)
    %n = Neg(%r)
    %d = Slice[starts=(0, 0, 4, 2), sizes=(3, 8, 5, 2), steps=(1, 1, -1, 1)](%n)
    %e = Reshape[shape=(3, 8, 5, 2, 1)](%d)
    return a=%a, b=%b, c=%c, e=%e"""


def test_an_axis_that_is_taken_backwards_is_not_left_out():
    graph = parse_graph(REVERSED)
    expected = run_graph(graph)
    optimize(graph)
    for name, array in run_graph(graph).items():
        np.testing.assert_array_equal(array, expected[name])


def test_parameters_are_no_masks_whatever_they_hold():
    """Another checkpoint has other numbers; what is the same everywhere by chance pins none."""
    graph = Graph()
    x = graph.input("x", TensorType(F32, (2, 3)))
    weight = graph.constant(np.zeros((2, 3), np.float32))
    graph.declare_parameter(weight, "a.weight")
    condition = graph.add(Binary("Equal"), [weight, graph.constant(np.zeros((), np.float32))]).output
    graph.output(graph.add(Where(), [condition, x, weight]).output, "y")
    rewrite(graph, rules_for("masks"))
    assert [node.op.name for node in graph.nodes] == ["Equal", "Where"]
    assert not weight.origin.pinned
