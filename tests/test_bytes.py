"""What a model says of its memory: what its weights take, what a run would need, and that it is given back."""

import mmap
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnx
import pytest

import graphc
from graphc.errors import GraphcError, InputError
from graphc.ggml_types import has_rows_apart
from graphc.targets.ggml.run import executor
from graphc.targets.ggml.run.device.tensors import give_back, in_place, prefer_huge_pages
from graphc.targets.ggml.run.memory import results
from graphc.weights.lora.by_rows import changed_by_rows

WIDTH = 256


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    model = onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["": 21]>
    narrow (float[n, {WIDTH}] x) => (float[n, {WIDTH}] y) {{ h = MatMul(x, w) g = Softmax(h) y = MatMul(g, w) }}""")
    weight = np.random.default_rng(0).standard_normal((WIDTH, WIDTH)).astype(np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    path = tmp_path_factory.mktemp("bytes") / "narrow.gguf"
    graphc.compile(model, path).close()
    return path


def x(rows):
    return np.ones((rows, WIDTH), np.float32)


def test_what_a_run_needs_is_what_it_reserves(engine):
    model = graphc.load(engine, threads=1)
    assert model.weight_bytes == WIDTH * WIDTH * 4
    said = model.bytes_for({"x": (3000, WIDTH)})
    assert model.reserved_bytes < said, "asking reserves nothing"
    before = model.run(x=x(3))["y"]
    assert model.reserved_bytes < said
    assert model.bytes_for({"x": (3, WIDTH)}) <= model.reserved_bytes
    model.run(x=x(3000))
    assert model.reserved_bytes == said == model.bytes_for({"x": (3000, WIDTH)})
    assert (model.run(x=x(3))["y"] == before).all()


def test_memory_of_results_is_given_back_and_taken_again(engine):
    model = graphc.load(engine, threads=2)
    before = model.run(x=x(3000))["y"]
    model.release()
    assert model.reserved_bytes == 0
    assert (model.run(x=x(3000))["y"] == before).all()
    model.close()
    for use in (model.release, lambda: model.bytes_for({"x": (3, WIDTH)})):
        with pytest.raises(GraphcError, match="closed"):
            use()


def test_results_leave_memory_and_graphs_stay(engine):
    model = graphc.load(engine, threads=1)
    before = {rows: model.run(x=x(rows))["y"] for rows in (3, 3000)}
    graphs = model.executor.graphs
    model.page_out()
    assert model.reserved_bytes == 0
    for rows, expected in before.items():
        assert (model.run(x=x(rows))["y"] == expected).all()
    assert model.executor.graphs == graphs


def test_memory_leaves_while_others_run(engine):
    model = graphc.load(engine, threads=1)
    before = {rows: model.run(x=x(rows))["y"] for rows in (1, 50, 900)}
    going = threading.Event()

    def leave():
        while not going.is_set():
            model.page_out()

    def run(rows):
        return all((model.run(x=x(rows))["y"] == before[rows]).all() for _ in range(40))

    with ThreadPoolExecutor(4) as pool:
        left = pool.submit(leave)
        try:
            same = [each.result() for each in [pool.submit(run, rows) for rows in before]]
        finally:
            going.set()
        left.result()
    assert all(same)


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="asks Linux what is in memory")
def test_mapped_weights_leave_memory_and_come_back(engine):
    def resident():
        """KiB of the engine's file that are in this process's memory."""
        found, counted = 0, False
        for line in Path("/proc/self/smaps").read_text().splitlines():
            first = line.split()[0]
            if not first.endswith(":"):
                counted = line.endswith(str(engine))
            elif first == "Rss:" and counted:
                found += int(line.split()[1])
        return found

    model = graphc.load(engine, threads=2)
    before = model.run(x=x(3))["y"]
    loaded = resident()
    assert loaded >= WIDTH * WIDTH * 4 >> 10
    model.page_out()
    assert resident() <= loaded - (WIDTH * WIDTH * 4 >> 10) + 64
    assert (model.run(x=x(3))["y"] == before).all()
    model.close()
    with pytest.raises(GraphcError, match="closed"):
        model.page_out()


@pytest.mark.parametrize("shapes", [{}, {"x": (3,)}, {"x": (3, WIDTH + 1)}, {"x": (3, WIDTH), "z": (1,)}])
def test_shapes_that_do_not_fit_are_refused(engine, shapes):
    with pytest.raises(InputError):
        graphc.load(engine, threads=1).bytes_for(shapes)


def test_devices_are_asked_before_they_get_anything(engine, monkeypatch):
    open_one = executor.open_backends
    monkeypatch.setattr(executor, "open_backends", lambda *args: open_one(*args) + open_one(*args))
    alone = graphc.load(engine, threads=1)
    small = alone.bytes_for({"x": (3, WIDTH)})
    for memory in (None, small + alone.weight_bytes + 4096):
        model = graphc.load(engine, threads=1, memory=memory)
        expected = model.run(x=x(3))["y"]
        assert model.bytes_for({"x": (30, WIDTH)}) > small
        assert (model.run(x=x(3))["y"] == expected).all()
    assert model.bytes_for({"x": (30000, WIDTH)}) > 100 * small
    assert (model.run(x=x(3))["y"] == expected).all()
    with pytest.raises(GraphcError, match="may use"):
        model.run(x=x(30000))


def resident(array):
    """Bytes of the pages of an array that this process has."""
    start = array.ctypes.data
    with open("/proc/self/smaps") as file:
        lines = iter(file)
        for line in lines:
            span = line.split(" ", 1)[0]
            if "-" in span and int(span.split("-")[0], 16) <= start < int(span.split("-")[1], 16):
                return next(int(each.split()[1]) << 10 for each in lines if each.startswith("Rss"))
    raise AssertionError("it lies nowhere")


@pytest.mark.skipif(not hasattr(mmap, "MADV_DONTNEED"), reason="the system does not take pages back")
def test_a_closed_model_keeps_no_pages_of_its_file(tmp_path):
    path = tmp_path / "numbers"
    np.arange(1 << 20, dtype=np.int32).tofile(path)
    mapped = np.asarray(np.memmap(path, np.uint8, "r"))
    parts = [mapped[4 : 1 << 20].view(np.int32), mapped[1 << 20 :].view(np.int32)[::2]]
    sums = [int(part.sum(dtype=np.int64)) for part in parts]
    before = resident(mapped)
    give_back([parts[0], np.ones(3), np.zeros((0, 2))])
    assert resident(mapped) <= before - (1 << 20) + 2 * mmap.PAGESIZE
    assert [int(part.sum(dtype=np.int64)) for part in parts] == sums


def test_huge_pages_are_asked_for_what_was_reserved(engine, monkeypatch):
    asked = []
    monkeypatch.setattr(results, "prefer_huge_pages", lambda begin, nbytes: asked.append(nbytes))
    model = graphc.load(engine, threads=1)
    for rows in (3, 6000, 3):
        model.run(x=x(rows))
    assert len(asked) == 2, "once for each size that there was before"
    assert asked[1] == model.reserved_bytes
    model.close()


@pytest.mark.skipif(not Path("/sys/kernel/mm/transparent_hugepage").exists(), reason="the system has no such pages")
def test_large_memory_may_lie_in_huge_pages():
    with mmap.mmap(-1, 16 << 20) as mapped:
        array = np.frombuffer(mapped, np.uint8)
        begin = array.ctypes.data
        prefer_huge_pages(begin, 1 << 20)
        assert "hg" not in flags_of(begin)
        prefer_huge_pages(begin + 5, (16 << 20) - 5)
        assert "hg" in flags_of(begin + mmap.PAGESIZE)
        del array


def flags_of(address):
    """What the kernel knows of the memory in which an address lies."""
    there = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        first, *rest = line.split()
        if not first.endswith(":"):
            begin, end = (int(each, 16) for each in first.split("-"))
            there = begin <= address < end
        elif there and first == "VmFlags:":
            return rest
    raise AssertionError("it lies nowhere")


@pytest.mark.skipif(not hasattr(mmap, "MADV_DONTNEED"), reason="the system does not take pages back")
def test_what_lies_unaligned_is_in_memory_once(tmp_path):
    path = tmp_path / "odd"
    path.write_bytes(b"!" + np.arange(1 << 20, dtype=np.float32).tobytes())
    mapped = np.asarray(np.memmap(path, np.uint8, "r"))
    array = mapped[1:].view(np.float32)
    assert array.sum() > 0
    before = resident(mapped)
    copy = in_place(array)
    assert resident(mapped) <= before - (4 << 20) + 2 * mmap.PAGESIZE
    assert copy.ctypes.data % 4 == 0
    assert (copy == np.arange(1 << 20)).all()


@pytest.mark.skipif(not hasattr(mmap, "MADV_DONTNEED"), reason="the system does not take pages back")
def test_parts_of_rows_are_given_back_with_what_lies_between(tmp_path):
    path = tmp_path / "rows"
    path.write_bytes(np.arange(1 << 20, dtype=np.float32).tobytes())
    mapped = np.asarray(np.memmap(path, np.float32, "r")).reshape(256, 4096)
    assert mapped.sum() > 0
    before = resident(mapped)
    part = mapped[:, 1024:2048]
    assert in_place(part, apart=True) is part
    assert in_place(part).flags.c_contiguous
    for other in (mapped[:128], mapped.T, mapped[:, ::2], np.broadcast_to(mapped[:1], mapped.shape)):
        assert not has_rows_apart(other)
        assert in_place(other, apart=True).flags.c_contiguous
    give_back([mapped[:, :1024]])
    assert resident(mapped) <= before - mapped.nbytes + mapped[0].nbytes


@pytest.mark.parametrize(
    ("shape", "rank"), [((3, 5), 2), ((2000, 700), 16), ((40, 30, 3, 3), 4), ((1, 1 << 19), 3), ((5, 0), 1)]
)
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_products_of_loras_by_rows_are_the_whole(shape, rank, dtype):
    random = np.random.default_rng(0)
    before, columns = random.standard_normal(shape).astype(dtype), int(np.prod(shape[1:]))
    pairs = [
        (
            random.standard_normal((shape[0], size)).astype(np.float32),
            random.standard_normal((size, columns)).astype(np.float32),
        )
        for size in (rank, 1)
    ]
    found = changed_by_rows(before, pairs, np.dtype(dtype), lambda part: part.astype(dtype))
    wanted = before.reshape(shape[0], -1).astype(np.float64) + sum(left.astype(float) @ right for left, right in pairs)
    assert (found.dtype, found.shape) == (before.dtype, shape)
    assert np.abs(found.reshape(wanted.shape) - wanted).max(initial=0) < (1e-4 if dtype == np.float32 else 0.02)


def test_an_error_of_a_thread_is_an_error():
    def refused(part):
        raise GraphcError("too large")

    pair = (np.ones((2000, 1), np.float32), np.ones((1, 700), np.float32))
    with pytest.raises(GraphcError, match="too large"):
        changed_by_rows(np.zeros((2000, 700), np.float16), [pair], np.dtype(np.float16), refused)
