"""Weights that lie on devices, stay on the host, or are streamed, within limits of memory. A second backend of the CPU stands for
a device here; tests/test_servers.py has devices whose memory is another process's."""

import re

import numpy as np
import onnx
import pytest
from cpp_programs import constants
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import graphc
from graphc.compiler import compile_program
from graphc.errors import GraphcError, InputError
from graphc.ggml_library import ggml
from graphc.ggml_types import has_rows_apart
from graphc.runtime.assigned import assigned
from graphc.targets.ggml.cpp.project import render_project
from graphc.targets.ggml.run import executor
from graphc.targets.ggml.run.choose.library import load_own
from graphc.targets.ggml.run.device.options import UNITS, Place, memory_limits
from graphc.targets.ggml.run.device.tensors import VIEW_OPS
from graphc.targets.ggml.run.memory import limits, streams
from graphc.targets.ggml.run.memory.residence import HOST, SLOTS, Plan, Reads, Residence, weights_read

LAYERS = 9
WIDTH = 32
LAYER = WIDTH * WIDTH * 4
BIAS = WIDTH * 4


def deep_model() -> onnx.ModelProto:
    """`LAYERS` products with different weights, one of them used twice and one through a transpose, biases, a table of rows, a
    weight that only a kernel reads, and an output from the middle."""
    rng = np.random.default_rng(5)
    nodes = [helper.make_node("Gather", ["table", "rows"], ["h0"])]
    weights = [numpy_helper.from_array(rng.standard_normal((50, WIDTH)).astype(np.float32), "table")]
    for index in range(LAYERS):
        weight = (rng.standard_normal((WIDTH, WIDTH)) / WIDTH**0.5).astype(np.float32)
        weights.append(numpy_helper.from_array(weight, f"w{index}"))
        weights.append(numpy_helper.from_array(rng.standard_normal(WIDTH).astype(np.float32), f"b{index}"))
        used = "w0" if index == LAYERS - 1 else f"w{index}"
        nodes.append(helper.make_node("Gemm", [f"h{index}", used, f"b{index}"], [f"g{index}"], transB=index % 2))
        nodes.append(helper.make_node("Tanh", [f"g{index}"], [f"t{index}"]))
        nodes.append(helper.make_node("Add", [f"t{index}", f"h{index // 2}"], [f"h{index + 1}"]))
    shift = numpy_helper.from_array(rng.uniform(0.1, 1, WIDTH).astype(np.float32), "shift")
    nodes.append(helper.make_node("Atan", ["shift"], ["angle"]))
    nodes.append(helper.make_node("Mod", [f"h{LAYERS}", "angle"], ["y"], fmod=1))
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", WIDTH]) for name in ("y", "h4")]
    inputs = [helper.make_tensor_value_info("rows", TensorProto.INT64, ["n"])]
    graph = helper.make_graph(nodes, "deep", inputs, outputs, [*weights, shift])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def rows(count: int) -> dict[str, np.ndarray]:
    return {"rows": np.random.default_rng(count).integers(0, 50, count)}


@pytest.fixture
def device(monkeypatch):
    """A device before the CPU, which computes as the CPU does."""
    open_one = executor.open_backends
    monkeypatch.setattr(executor, "open_backends", lambda *args: open_one(*args) + open_one(*args))
    return open_one


def check(model: graphc.Model, counts=(3, 3, 7, 1, 3)) -> None:
    reference = ReferenceEvaluator(deep_model())
    for count in counts:
        feed = rows(count)
        for name, expected in zip(("y", "h4"), reference.run(None, feed), strict=True):
            np.testing.assert_allclose(model.run(feed)[name], expected, rtol=1e-5, atol=1e-5)


def needed(model: graphc.Model) -> list[int]:
    """Bytes that each device has reserved for results."""
    with model.executor.context() as context:
        scheduler = context.compute._scheduler
        devices = model.executor.backends[:-1]
        return [ggml.ggml_backend_sched_get_buffer_size(scheduler, each) for each in devices]


def bytes_of(model: graphc.Model, indices) -> int:
    """What weights take on a device."""
    sizes = model.executor.weights.sizes()
    return sum(sizes[index] for index in indices)


def layers_streamed(model: graphc.Model) -> int:
    found = model.executor.weights
    return sum(found.arrays[index].nbytes == LAYER for index in found.residence.streamed)


@pytest.mark.parametrize("at_once", [False, True])
def test_less_memory_streams_more(device, monkeypatch, at_once):
    monkeypatch.setattr(streams, "is_async", lambda backend: at_once)
    streamed = []
    for kib in (24, 28, 36, 44, 400):
        model = graphc.compile(deep_model(), memory=kib << 10, threads=1)
        check(model)
        streamed.append(layers_streamed(model))
        used = bytes_of(model, model.executor.weights.residence.resident(0))
        slots = SLOTS * model.executor.weights.residence.slots[0]
        assert used + slots + needed(model)[0] <= kib << 10
        model.close()
    assert streamed == sorted(streamed, reverse=True)
    assert streamed[0] >= LAYERS - 3
    assert streamed[-1] == 0


def test_the_least_memory_is_named_and_does(device):
    model = graphc.compile(deep_model(), memory=1000, threads=1)
    with pytest.raises(GraphcError, match=r"need ([0-9.]+) MiB there at least") as caught:
        model.run(rows(3))
    assert "twice the 0.0 MiB" in str(caught.value)
    roomy = graphc.compile(deep_model(), memory=1 << 20, threads=1)
    check(roomy, [3])
    least = needed(roomy)[0] + SLOTS * (LAYER + BIAS)
    check(graphc.compile(deep_model(), memory=least, threads=1), [3])
    with pytest.raises(GraphcError, match="at least"):
        graphc.compile(deep_model(), memory=least - 1, threads=1).run(rows(3))


def test_larger_sizes_push_weights_out(device):
    model = graphc.compile(deep_model(), memory=64 << 10, threads=1)
    check(model, [1])
    before = layers_streamed(model)
    check(model, [60])
    assert layers_streamed(model) > before
    check(model, [1, 60])


def test_a_table_that_does_not_fit_stays_where_its_rows_are_looked_up(device):
    model = graphc.compile(deep_model(), memory=24 << 10, threads=1)
    check(model, [3])
    names = [weight.name for weight in model.program.weights]
    places = dict(zip(names, model.executor.weights.residence.device, strict=True))
    assert places["table"] == HOST
    assert places["w3"] == 0


def test_other_weights_are_streamed_from_then_on(device):
    model = graphc.compile(deep_model(), memory=24 << 10, threads=1)
    check(model, [3])
    whole = graphc.compile(deep_model(), threads=1)
    doubled = [(array * 2).astype(array.dtype) for array in whole.executor.arrays]
    whole.executor.replace_weights(doubled)
    model.executor.replace_weights(doubled)
    for count in (3, 5, 3):
        expected = whole.run(rows(count))
        for name, array in model.run(rows(count)).items():
            np.testing.assert_allclose(array, expected[name], rtol=1e-5, atol=1e-5)


def test_an_error_while_weights_are_copied_is_raised(device, monkeypatch):
    model = graphc.compile(deep_model(), memory=24 << 10, threads=1)
    check(model, [3])

    def broken(*args):
        raise OSError("the file is gone")

    monkeypatch.setattr(streams, "upload", broken)
    with pytest.raises(OSError, match="the file is gone"):
        model.run(rows(3))
    monkeypatch.undo()
    check(model, [3])


def test_what_a_device_reports_as_free_is_the_limit(device, monkeypatch):
    monkeypatch.setattr(limits, "free_memory", lambda backend: 32 << 10)
    model = graphc.compile(deep_model(), threads=1)
    check(model)
    assert layers_streamed(model) > 0
    monkeypatch.setattr(limits, "free_memory", lambda backend: 1 << 20)
    model = graphc.compile(deep_model(), threads=1)
    assert model.executor.weights.residence is not None, "loaded at once"
    check(model)
    assert layers_streamed(model) == 0


@pytest.mark.parametrize("type", ["q8_0", "f16"])
def test_weights_in_other_types_are_streamed(device, type):
    types = [f"w*={type}"]
    roomy = graphc.compile(deep_model(), memory=1 << 20, threads=1, dtype=types)
    roomy.run(rows(4))
    least = needed(roomy)[0] + SLOTS * (LAYER + BIAS)
    model = graphc.compile(deep_model(), memory=least, threads=1, dtype=types)
    whole = graphc.compile(deep_model(), threads=1, dtype=types)
    whole.executor.uses_own = False
    for count in (3, 4, 3):
        expected = whole.run(rows(count))
        for name, array in model.run(rows(count)).items():
            np.testing.assert_array_equal(array, expected[name])
    streamed = model.executor.weights.residence.streamed
    assert {model.program.weights[index].type_name for index in streamed} >= {type}


@pytest.mark.parametrize("place", ["resident", "streamed", "host"])
def test_parts_of_rows_go_where_other_weights_go(monkeypatch, device, place):
    """What is copied to a device once is not copied before; what is streamed, or stays on the host, lies together."""
    random = np.random.default_rng(1)
    given = {name: random.standard_normal((256, 512), np.float32) / 16 for name in ("v", "w")}
    x, z = random.standard_normal((2, 40, 256), np.float32)
    nodes = [
        helper.make_node("Concat", ["x", "z"], ["c"], axis=1),
        helper.make_node("Gemm", ["c", "v"], ["h"], transB=1),
        helper.make_node("Concat", ["h", "z"], ["d"], axis=1),
        helper.make_node("Gemm", ["d", "w"], ["y"], transB=1),
    ]
    *inputs, output = (helper.make_tensor_value_info(name, TensorProto.FLOAT, x.shape) for name in "xzy")
    constants = [numpy_helper.from_array(array, name) for name, array in given.items()]
    graph = helper.make_graph(nodes, "joined", inputs, [output], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    if place == "host":
        monkeypatch.setattr(executor, "open_backends", lambda *args: device("cpu", 1) + device("cpu", 1))
    limit = {"resident": 16 << 20, "streamed": 800 << 10, "host": 1000}[place]
    found = graphc.compile(
        model, weights=given, memory=limit, threads=1, **({"device": "a,cpu"} if place == "host" else {})
    )
    for sign in (1, -1):
        given["w"] *= sign
        found.load_weights(given)
        for _ in range(2):
            h = np.concatenate([x, z], 1) @ given["v"].T
            expected = np.concatenate([h, z], 1) @ given["w"].T
            np.testing.assert_allclose(found.run(x=x, z=z)["y"], expected, rtol=1e-5, atol=1e-5)
    weights = found.executor.weights
    residence = weights.residence
    apart = {index for index, array in enumerate(weights.arrays) if has_rows_apart(array)}
    assert len(weights.arrays) == 4
    assert set(residence.device) == {HOST if place == "host" else 0}
    assert bool(residence.streamed) == (place == "streamed")
    assert apart == (set() if place == "host" else set(range(4)) - residence.streamed)


def test_two_devices_and_the_cpu(monkeypatch):
    open_one = executor.open_backends
    monkeypatch.setattr(executor, "open_backends", lambda *args: [open_one("cpu", 1)[0] for _ in range(3)])
    for device, memory, streams_some in (
        ("a,b", "20KiB,22KiB", True),
        ("a,b", "28KiB,56KiB", False),
        ("a,b,cpu", "16KiB,18KiB", False),
    ):
        model = graphc.compile(deep_model(), device=device, memory=memory, threads=1)
        check(model)
        places = model.executor.weights.residence.device
        assert {0, 1} <= set(places)
        assert bool(model.executor.weights.residence.streamed) == streams_some
        assert (sum(each == HOST for each in places) > 2) == ("cpu" in device)
        for number, limit in enumerate(memory_limits(memory)):
            own = bytes_of(model, model.executor.weights.residence.resident(number))
            slots = SLOTS * model.executor.weights.residence.slots[number]
            assert own + slots + needed(model)[number] <= limit


@pytest.mark.parametrize(
    ("device", "memory"),
    [("a", None), ("a", "24KiB"), ("a,b", "20KiB,22KiB"), ("a,b,cpu", "16KiB,18KiB"), ("a,cpu", 1000)],
)
def test_what_is_planned_is_what_happens(monkeypatch, device, memory):
    open_one = executor.open_backends
    count = len(device.replace(",cpu", "").split(",")) + 1
    monkeypatch.setattr(executor, "open_backends", lambda *args: [open_one("cpu", 1)[0] for _ in range(count)])
    model = graphc.compile(deep_model(), device=device, memory=memory, threads=1)
    model.run(rows(3))
    with monkeypatch.context() as context:
        context.delattr("graphc.targets.ggml.run.memory.weights.upload")
        found = assigned(model.program, Place(device, 1, memory), {"n": 3})
    assert found.memory == model.executor.fitting.text()
    steps = sum(node.contents.op not in VIEW_OPS for node in model.executor.graphs[0].placement.nodes)
    assert found.devices.total() + sum(each.total() for each in found.cpu.values()) == steps
    assert not found.unknown
    assert assigned(model.program, Place(device, 1, memory), {}).unknown == 1


def test_a_plan_frees_what_it_opened(monkeypatch):
    program = compile_program(deep_model())
    open_one, opened, freed = executor.open_backends, [], []
    monkeypatch.setattr(executor, "open_backends", lambda *args: open_one("cpu", 1) + open_one("cpu", 1))
    start, free = ggml.ggml_backend_cpu_init, ggml.ggml_backend_free
    monkeypatch.setattr(ggml, "ggml_backend_cpu_init", lambda: opened.append(start()) or opened[-1])
    monkeypatch.setattr(ggml, "ggml_backend_free", lambda backend: (freed.append(backend), free(backend)))
    assigned(program, Place("a"), {"n": 3})
    assert len(freed) == len(opened) > 2
    with pytest.raises(GraphcError, match="at least"):
        assigned(program, Place("a", memory=1000), {"n": 3})
    assert len(freed) == len(opened) > 5
    monkeypatch.setattr("graphc.runtime.assigned.Executor", None)
    assert not assigned(program, Place("cpu"), {"n": 3}).devices


def test_the_cpu_has_no_limit():
    assert graphc.compile(deep_model()).executor.fitting.text() == []
    with pytest.raises(InputError, match="the CPU, which uses weights where they lie"):
        graphc.compile(deep_model(), memory="1GiB")


def test_limits_are_for_devices_in_turn(device):
    with pytest.raises(InputError, match="2 limits of memory are given for"):
        graphc.compile(deep_model(), memory="1GiB,1GiB")


def test_the_cpu_takes_all_where_there_is_no_room(monkeypatch):
    open_one = executor.open_backends
    monkeypatch.setattr(executor, "open_backends", lambda *args: [open_one("cpu", 1)[0] for _ in range(2)])
    model = graphc.compile(deep_model(), device="a,cpu", memory=1000, threads=1)
    check(model)
    assert set(model.executor.weights.residence.device) == {HOST}


def test_nothing_is_left_of_a_model_that_could_not_be_loaded(device, monkeypatch):
    made, freed = [], []
    allocate, free = ggml.ggml_backend_buft_alloc_buffer, ggml.ggml_backend_buffer_free

    def allocated(kind, nbytes):
        if made:
            return None
        made.append(allocate(kind, nbytes))
        return made[-1]

    monkeypatch.setattr(ggml, "ggml_backend_buft_get_max_size", lambda kind: 20 << 10)
    monkeypatch.setattr(ggml, "ggml_backend_buft_alloc_buffer", allocated)
    monkeypatch.setattr(ggml, "ggml_backend_buffer_free", lambda buffer: (freed.append(buffer), free(buffer)))
    with pytest.raises(GraphcError, match=r"does not have the \d+ MiB that the weights need; with a limit"):
        graphc.compile(deep_model(), threads=1)
    assert made[0] in freed


def test_limits_are_numbers_with_units():
    assert memory_limits("4GiB, 1.5 MiB,auto") == [4 << 30, 3 << 19, None]
    assert memory_limits([None, 7, "8kb"]) == [None, 7, 8000]
    assert memory_limits(1 << 30) == [1 << 30]
    assert memory_limits(None) == []
    assert set(UNITS) >= {"gib", "mib"}
    for wrong in ("", "4 GB iB", "-1", "0", "1e9", "٤GiB", "4TiB", "1GiB,,2GiB", 0, True):
        with pytest.raises(InputError, match="not an amount of memory"):
            memory_limits(wrong)


def test_the_command_says_what_lies_where(graphc_command, tmp_path, device):
    onnx.save(deep_model(), tmp_path / "deep.onnx")
    done = graphc_command("run", "deep.onnx", "--random", "1", "--dim", "n=3", "--memory", "32KiB")
    assert done.status == 0
    assert "streamed through 2 x" in done.err
    done = graphc_command("run", "deep.onnx", "--random", "1", "--dim", "n=3", "--memory", "1KiB")
    assert done.status == 1
    assert "at least" in done.err


def test_what_reads_weights_is_known():
    program = graphc.compile(deep_model()).program
    reads = weights_read(program)
    names = [weight.name for weight in program.weights]
    odd = [name for name in (names[index] for index in reads.order) if name.startswith("w")]
    assert odd == ["w1", "w3", "w5", "w7"], "in order; the others were transposed, which makes other weights of them"
    assert len(reads.order) == len(program.weights)
    assert [names[index] for index in reads.by_rows] == ["table"]
    assert len(reads.by_host) == 1


def test_devices_need_code_of_our_own(device, monkeypatch):
    monkeypatch.setattr(executor, "load_own", lambda: None)
    with pytest.raises(GraphcError, match=r"^\w+: devices .* need graphc's own C code, .* `pip install ziglang`$"):
        graphc.compile(deep_model(), threads=1)
    monkeypatch.undo()
    monkeypatch.setattr(executor, "load_own", lambda: None)
    check(graphc.compile(deep_model(), threads=1), [3])


SIZES = st.lists(st.integers(1, 50), min_size=1, max_size=12)


def planned(
    sizes, limits, *, results=None, together=(), host=(), rows=(), displaced=(), spill=False
) -> Residence | int:
    """Where weights of these sizes come to lie, read one after the other; or the device that is too small."""
    reads = Reads((*((index,) for index in range(len(sizes))), *together), frozenset(rows), frozenset())
    devices = [(f"device {number}", limit, 0) for number, limit in enumerate(limits)]
    plan = Plan(load_own(), devices, sizes, reads, host, spill)
    try:
        while not plan.fits(results or [0] * len(limits), displaced):
            pass
    except GraphcError as error:
        return int(re.match(r"device (\d) may use", str(error))[1])
    return plan.residence


@given(SIZES, st.lists(st.integers(1, 300), min_size=1, max_size=3), st.booleans())
def test_each_device_has_a_stretch(sizes, limits, spill):
    found = planned(sizes, limits, host={0}, spill=spill)
    if not spill and isinstance(found, int):
        return
    assert found.device[0] == HOST
    moved = [each for each in found.device[1:] if each != HOST]
    assert moved == sorted(moved)
    if not spill:
        assert HOST not in found.device[1:]
        return
    assert not found.streamed
    for number, space in enumerate(limits):
        assert sum(sizes[index] for index in found.resident(number)) <= space


@given(SIZES, st.integers(1, 400), st.integers(0, 100))
def test_what_is_chosen_fits_and_wastes_no_room(sizes, space, results):
    found = planned(sizes, [space + results], results=[results])
    if SLOTS * max(sizes) > space < sum(sizes):
        assert found == 0
    elif sum(sizes) <= space:
        assert found == Residence([0] * len(sizes), frozenset(), [0])
    else:
        left = space - sum(sizes[index] for index in found.resident(0)) - SLOTS * found.slots[0]
        assert 0 <= left < min(sizes[index] for index in found.streamed)
        assert found.slots[0] == max(sizes[index] for index in found.streamed)


def test_what_is_known_of_weights_decides():
    assert planned([9, 9, 9, 9], [30], together=[(0, 3)]) == 0, "a call reads two, and there are two slots"
    assert planned([9, 9, 9, 9], [30]) == Residence([0] * 4, frozenset({1, 2, 3}), [9])
    assert planned([9, 9, 9], [20], rows={1}).device == [0, HOST, 0]
    assert planned([9, 9, 9], [27], rows={1}).device == [0, 0, 0]
    assert planned([9, 9, 9], [27], displaced={2}).device == [0, 0, HOST]
    assert planned([9, 9, 9], [9, 9], spill=True).device == [0, 1, HOST]
    assert planned([9, 9, 9], [1, 1], spill=True).device == [HOST] * 3


def test_cpp_code_says_what_reads_weights():
    files = render_project(graphc.compile(deep_model()).program)
    uses = dict(re.findall(r'"(\w+)", GGML_TYPE_F32, {[^}]*}(?:, graphc::Use::(\w+))?}', files["weights.cpp"]))
    assert {name: use for name, use in uses.items() if use} == {"table": "rows", "angle": "kernels"}
    joined = render_project(constants())
    assert "    return {\n        {0, 1},\n    };" in joined["weights.cpp"], "a call reads both"
