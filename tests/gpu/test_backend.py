"""The backend of generated kernels computes, on a device of libcuda's stand-in, beside the CPU by ggml's scheduler."""

import itertools
import os
import random
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from emulated_device import (
    BLOCK,
    LENGTH,
    SANITIZER,
    Alone,
    Mixed,
    X,
    device,
    double,
    doubled,
    fake,
    grid,
    image,
    nothing_is_left,  # noqa: F401
    result_of,
)

from graphc.backends.generated import DeviceError, check_devices, library, timed_nodes
from graphc.backends.launches import Counters, Launch, Module, Place, Work
from graphc.ggml_library import ggml
from graphc.kernels.gpu.dialect import divisor
from graphc.runtime.profile import Clock
from graphc.targets.ggml.run.choose.assign import BROKEN, DEVICE, KEPT, LAUNCHED, REFUSED, assign
from graphc.targets.ggml.run.choose.library import load_own
from graphc.targets.ggml.run.device.tensors import address

LAUNCH, STEP = 1, 2
"""`enum graphc_gpu_mode`."""

FILES = (__file__, *(str(Path(__file__).with_name(f"test_{name}.py")) for name in ("backend_errors", "driver_calls")))


def test_kernels_and_the_cpu_share_a_graph():
    before = fake().counts()["cuLaunchKernel"]
    with Mixed() as mixed:
        assert ggml.ggml_backend_sched_get_n_splits(mixed.scheduler) == 3
        np.testing.assert_array_equal(mixed.run(X), result_of(X))
        assert fake().counts()["cuLaunchKernel"] - before == 3


EARLY = """
import numpy as np
from emulated_device import Mixed, X, fake, result_of

with Mixed() as mixed:
    for turn in range(4):
        np.testing.assert_array_equal(mixed.run(X + turn), result_of(X + turn))
counts = fake().counts()
assert (counts["cuLaunchKernelEx"], counts.get("cuLaunchKernel", 0)) == (6, 0), counts
"""


def test_kernels_may_begin_before_others_end():
    """If it is asked for when the driver is opened, launches say so, where what the driver says of the code allows it."""
    environment = {**os.environ, "GRAPHC_EARLY_KERNELS": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    subprocess.run([sys.executable, "-c", EARLY], env=environment, check=True, timeout=300)


def test_a_kernel_is_the_devices_wherever_it_stands():
    """A small step between two of the CPU's stays with those, but not one that nobody else can compute."""
    with Mixed() as mixed:
        mixed.placement.reset()
        found = assign(load_own(), mixed.own, mixed.graph)
        assert [address(node) for node in found[LAUNCHED]] == [address(node) for node in mixed.nodes]
        assert [node.contents.op for node in found[REFUSED]] == [ggml.GGML_OP_SQR, ggml.GGML_OP_UNARY]
        assert found[DEVICE] == found[BROKEN] == found[KEPT] == []


@pytest.mark.parametrize("seed", range(8))
def test_what_is_queued_may_be_done_late_and_in_any_order(seed):
    fake().functions.fake_cuda_seed(seed)
    with Mixed() as mixed, Mixed(17, factor=-1.5) as other:
        for turn in range(4):
            np.testing.assert_array_equal(mixed.run(X * turn), result_of(X * turn))
            np.testing.assert_array_equal(other.run(X[:17]), result_of(X[:17], -1.5))


def test_a_graph_that_comes_again_is_recorded():
    with Mixed() as mixed:
        for turn, expected in enumerate([(0, 0), (1, 1), (1, 2), (1, 3)]):
            before = fake().counts()["cuLaunchKernel"]
            np.testing.assert_array_equal(mixed.run(X + turn), result_of(X + turn))
            assert mixed.recordings() == expected
            assert fake().counts()["cuLaunchKernel"] - before == (3 if turn < 2 else 0)


@pytest.mark.parametrize("mode", [LAUNCH, STEP])
def test_recording_can_be_turned_off(mode):
    with Mixed() as mixed:
        library().library.graphc_gpu_set_mode(mixed.own, mode)
        for _ in range(3):
            np.testing.assert_array_equal(mixed.run(X), result_of(X))
        assert mixed.recordings() == (0, 0)


@pytest.mark.parametrize("name", ["cuStreamBeginCapture", "cuStreamEndCapture", "cuGraphInstantiate"])
def test_what_the_driver_cannot_record_is_launched(name):
    with Mixed() as mixed:
        fake().fail(name)
        for _ in range(3):
            np.testing.assert_array_equal(mixed.run(X), result_of(X))
        assert mixed.recordings() == (0, 0)


def test_a_recording_is_of_its_kernels_addresses_and_values():
    with Mixed() as mixed:
        first = mixed.works[0]._each[0]
        copied = mixed.module.kernel("copied").handle
        few = np.where(
            np.arange(LENGTH) < 2 * BLOCK, result_of(X, 8.0), result_of(X, 4.0)
        )  # what is left of the run before

        def run(expected):
            for _ in range(2):
                np.testing.assert_array_equal(mixed.run(X), expected)

        def factor(value):
            first.arguments[3].content.bytes[:4] = np.float32(value).tobytes()

        run(result_of(X))
        factor(4.0)
        run(result_of(X, 4.0))
        first.grid[0] = 2
        factor(8.0)
        run(few)
        first.grid[0] = grid(LENGTH)[0]
        run(result_of(X, 8.0))
        first.kernel = copied
        run(-(X * X + (X * X * np.float32(0.5) + np.float32(3))))
        assert mixed.recordings() == (5, 5)


def test_views_cost_nothing_and_lie_where_they_say():
    x = np.arange(6 * 40, dtype=np.float32).reshape(6, 40)

    def make(alone):
        rows = ggml.ggml_view_2d(alone.context, alone.x, 40, 3, 160, 2 * 160)
        flat = ggml.ggml_transpose(alone.context, ggml.ggml_reshape_2d(alone.context, rows, 20, 6))
        alone.work = doubled(alone.module, 100, offset=80)
        return alone.work.node(alone.context, ggml.GGML_TYPE_F32, [100], [flat])

    before = fake().counts()["cuLaunchKernel"]
    with Alone(make, x) as alone:
        np.testing.assert_array_equal(alone.run(100), 2 * x.reshape(-1)[100:200])
    assert fake().counts()["cuLaunchKernel"] - before == 1


def test_a_recording_is_of_its_offsets():
    def make(alone):
        alone.works = [doubled(alone.module, 64), doubled(alone.module, 64)]
        node = alone.works[0].node(alone.context, ggml.GGML_TYPE_F32, [64], [alone.x])
        return alone.works[1].node(alone.context, ggml.GGML_TYPE_F32, [64], [node])

    with Alone(make, X[:128]) as alone:
        for offset in (0, 0, 64, 64, 0):
            alone.works[0]._each[0].arguments[0].content.offset = 4 * offset
            np.testing.assert_array_equal(alone.run(64), 4 * X[offset : offset + 64])


def test_a_divisor_is_a_value():
    def make(alone):
        each = Launch(
            alone.module.kernel("remainders"),
            grid(70),
            BLOCK,
            [Place(-1), np.int32(70), np.array(divisor(7), np.uint32)],
        )
        alone.work = Work([each])
        return alone.work.node(alone.context, ggml.GGML_TYPE_F32, [70], [alone.x])

    with Alone(make, X[:1]) as alone:
        np.testing.assert_array_equal(alone.run(70), np.arange(70) % 7)


def test_a_launch_without_blocks_is_nothing_to_do():
    def make(alone):
        kernel = alone.module.kernel("scaled")
        values = [np.int32(8), np.float32(2), np.float32(0)]
        none = Launch(kernel, (0, 1, 1), BLOCK, [Place(0), Place(-1), *values])
        alone.work = Work([none, Launch(kernel, (1, 1, 1), BLOCK, [Place(0), Place(-1), *values]), none])
        return alone.work.node(alone.context, ggml.GGML_TYPE_F32, [8], [alone.x])

    with Alone(make, X[:8]) as alone:
        np.testing.assert_array_equal(alone.run(8), 2 * X[:8])


def test_scratch_memory_grows_with_what_is_wanted():
    with Mixed(100) as mixed:
        for wanted in (1 << 10, 1 << 16, 1 << 12, 1 << 20):
            mixed.works[1]._each[0].scratch = wanted
            for _ in range(3):
                np.testing.assert_array_equal(mixed.run(X[:100]), result_of(X[:100]))
        assert mixed.recordings()[0] == 3, "another place is another graph"


def test_counters_are_zero_when_a_launch_begins():
    """Also where they grow, where a graph is replayed, and after a run that failed."""

    def make(alone):
        alone.work = Work(
            [Launch(alone.module.kernel("turns"), (3, 8, 1), BLOCK, [Counters(), Place(-1)], counters=32)] * 2
        )
        return alone.work.node(alone.context, ggml.GGML_TYPE_F32, [8], [alone.x])

    def run(alone):
        nothing = np.zeros(8, np.float32)
        ggml.ggml_backend_tensor_set(alone.y, nothing.ctypes.data, 0, nothing.nbytes)
        assert (alone.run(8) == 1).all()

    with Alone(make, X[:8]) as alone:
        for wanted in (32, 1 << 12, 64):
            alone.work._each[0].counters = wanted
            for _ in range(3):
                run(alone)
        before = fake().counts()["cuMemsetD8Async"]
        run(alone)
        assert fake().counts()["cuMemsetD8Async"] == before
        fake().fail("cuGraphLaunch")
        with pytest.raises(DeviceError, match="cuGraphLaunch"):
            alone.run(8)
        run(alone)
        assert fake().counts()["cuMemsetD8Async"] == before + 1, "nobody knows what a run leaves that failed"


def test_parts_of_tensors_are_copied_set_and_cleared():
    x = np.arange(64, dtype=np.float32)
    with Alone(double, x) as alone:
        part = np.array([100, 200], np.float32)
        ggml.ggml_backend_tensor_set(alone.x, part.ctypes.data, 12, 8)
        ggml.ggml_backend_tensor_memset(alone.x, 0, 240, 8)
        x[3:5], x[60:62] = part, 0
        np.testing.assert_array_equal(alone.run(64), 2 * x)
        got = np.empty(3, np.float32)
        ggml.ggml_backend_tensor_get(alone.y, got.ctypes.data, 16, 12)
        np.testing.assert_array_equal(got, 2 * x[4:7])
        ggml.ggml_backend_tensor_copy(alone.y, alone.x)
        np.testing.assert_array_equal(alone.run(64), 4 * x)
        ggml.ggml_backend_buffer_clear(alone.buffer, 0)
        np.testing.assert_array_equal(alone.run(64), 0 * x)


def test_copies_of_a_queue_are_in_its_order():
    with Alone(double, X[:64]) as alone:
        got = [np.empty(64, np.float32) for _ in range(3)]
        given = [np.full(64, number, np.float32) for number in range(3)]
        for x, y in zip(given, got, strict=True):
            ggml.ggml_backend_tensor_set_async(alone.own, alone.x, x.ctypes.data, 0, x.nbytes)
            assert ggml.ggml_backend_graph_compute_async(alone.own, alone.graph) == ggml.GGML_STATUS_SUCCESS
            ggml.ggml_backend_tensor_get_async(alone.own, alone.y, y.ctypes.data, 0, y.nbytes)
        ggml.ggml_backend_synchronize(alone.own)
        check_devices()
        np.testing.assert_array_equal(got, [2 * x for x in given])


@pytest.mark.parametrize("numbers", [(0, 0), (0, 1)])
def test_devices_copy_from_each_other(numbers):
    with Alone(double, X[:64], numbers[0]) as first, Alone(double, X[:64], numbers[1]) as second:
        event = ggml.ggml_backend_event_new(device(numbers[0]))
        for later in (True, False):
            ggml.ggml_backend_graph_compute_async(first.own, first.graph)
            if later:
                ggml.ggml_backend_tensor_copy_async(first.own, second.own, first.y, second.x)
            else:
                ggml.ggml_backend_event_record(event, first.own)
                ggml.ggml_backend_event_wait(second.own, event)
                ggml.ggml_backend_event_synchronize(event)
                ggml.ggml_backend_tensor_copy(first.y, second.x)
            np.testing.assert_array_equal(second.run(64), 4 * X[:64])
            ggml.ggml_backend_tensor_set(second.x, X.ctypes.data, 0, 256)
        ggml.ggml_backend_event_free(event)


@pytest.mark.parametrize("seed", range(8))
def test_what_is_copied_to_another_device_is_not_changed_meanwhile(seed):
    fake().functions.fake_cuda_seed(seed)
    with Alone(double, X[:64]) as first, Alone(double, 0 * X[:64], 1) as second:
        ggml.ggml_backend_graph_compute_async(first.own, first.graph)
        ggml.ggml_backend_tensor_copy_async(first.own, second.own, first.y, second.x)
        other = X[64:128]
        ggml.ggml_backend_tensor_set_async(first.own, first.x, other.ctypes.data, 0, 256)
        ggml.ggml_backend_graph_compute_async(first.own, first.graph)
        ggml.ggml_backend_synchronize(first.own)
        np.testing.assert_array_equal(second.run(64), 4 * X[:64])


def test_code_is_given_back_when_what_was_queued_is_done():
    with Alone(double, X[:64]) as alone:
        ggml.ggml_backend_graph_compute_async(alone.own, alone.graph)
        alone.module.free()
        y = np.empty(64, np.float32)
        ggml.ggml_backend_tensor_get(alone.y, y.ctypes.data, 0, y.nbytes)
        np.testing.assert_array_equal(y, 2 * X[:64])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_process_that_was_forked_leaves_the_device_alone():
    module = Module(device(), image())
    before = sum(fake().counts().values())
    child = os.fork()
    if child == 0:
        module.free()
        os._exit(sum(fake().counts().values()) != before)
    assert os.waitpid(child, 0)[1] == 0
    module.free()


def test_a_block_may_have_much_shared_memory():
    def make(alone):
        arguments = [Place(0), Place(-1), np.int32(64), np.float32(2), np.float32(0)]
        kernel = alone.module.kernel("scaled", 100 << 10)
        alone.work = Work([Launch(kernel, grid(64), BLOCK, arguments, shared=100 << 10)])
        return alone.work.node(alone.context, ggml.GGML_TYPE_F32, [64], [alone.x])

    with Alone(double, X[:64]) as alone:
        np.testing.assert_array_equal(alone.run(64), 2 * X[:64])
        with pytest.raises(
            DeviceError, match=r"^emulated0: kernel scaled: cuFuncSetAttribute: CUDA_ERROR_INVALID_VALUE"
        ):
            alone.module.kernel("scaled", 1 << 20)


def test_nodes_are_timed_by_the_device():
    with Mixed() as mixed:
        for _ in range(2):
            with timed_nodes([mixed.own, mixed.cpu]) as told:
                np.testing.assert_array_equal(mixed.run(X), result_of(X))
            assert list(told) == [address(node) for node in mixed.nodes]
            np.testing.assert_allclose(list(told.values()), [1e-3, 2e-3], rtol=1e-4)  # a launch takes 1 ms there
        mixed.run(X)
        assert mixed.recordings() == (0, 0), "what is timed is not recorded, and the third run was the first"


def test_a_profile_has_the_seconds_of_the_device():
    with Mixed() as mixed, timed_nodes([mixed.own]) as told:
        backends = {address(node): mixed.own for node in mixed.nodes}
        clock = Clock(SimpleNamespace(device_of=lambda tensor: backends.get(address(tensor), mixed.cpu)), None, told)

        @ggml.ggml_backend_sched_eval_callback
        def listen(tensor, asked, _):
            return clock.wants(tensor) if asked else clock.computed(tensor)

        ggml.ggml_backend_sched_set_eval_callback(mixed.scheduler, listen, None)
        np.testing.assert_array_equal(mixed.run(X), result_of(X))
        assert [each.device for each in clock.found] == ["CPU", "emulated0", "emulated0", "CPU"]
        np.testing.assert_allclose([each.seconds for each in clock.found[1:3]], [1e-3, 2e-3], rtol=1e-4)


def test_two_threads_use_a_device_at_once():
    wrong = []

    def work(number):
        try:
            for turn in range(6):
                with Mixed(200 + number, factor=number) as mixed:
                    for _ in range(turn):
                        x = X[: 200 + number]
                        np.testing.assert_array_equal(mixed.run(x), result_of(x, number))
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in (1, 2, 3)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not wrong


@pytest.mark.parametrize("seed", range(8))
def test_what_one_thread_records_others_leave_alone(seed):
    fake().functions.fake_cuda_seed(seed)
    with Mixed() as mixed, Mixed(17) as other:
        mixed.run(X)
        with fake().meanwhile("cuStreamEndCapture", lambda: other.run(X[:17])):
            np.testing.assert_array_equal(mixed.run(X), result_of(X))
        np.testing.assert_array_equal(mixed.run(2 * X), result_of(2 * X))
        assert mixed.recordings() == (1, 2)


def test_things_are_given_back_in_any_order():
    """But for the scheduler, which ggml wants before its backends."""
    for order in itertools.permutations(range(5)):
        if order.index(4) > min(order.index(0), order.index(1)):
            continue
        mixed = Mixed(33)
        mixed.run(X[:33])
        mixed.run(X[:33])
        mixed.free(order)
        fake().check()


def test_a_buffer_outlives_all_else():
    backend = ggml.ggml_backend_dev_init(device(), None)
    buffer = ggml.ggml_backend_buft_alloc_buffer(ggml.ggml_backend_dev_buffer_type(device()), 1000)
    ggml.ggml_backend_free(backend)
    ggml.ggml_backend_buffer_clear(buffer, 7)
    ggml.ggml_backend_buffer_free(buffer)
    check_devices()


def test_graphs_are_forgotten_that_do_not_come_again():
    with Mixed(8) as mixed:
        argument = mixed.works[0]._each[0].arguments[3].content
        order = [*range(100), *range(100)]
        random.Random(0).shuffle(order)
        for factor in order:
            argument.bytes[:4] = np.float32(factor).tobytes()
            for _ in range(2):
                np.testing.assert_array_equal(mixed.run(X[:8]), result_of(X[:8], factor))


@pytest.mark.skipif(bool(SANITIZER), reason="this is what it runs")
@pytest.mark.parametrize(
    ("sanitizer", "chosen"),
    [("address", "not sanitizer"), pytest.param("thread", "threads", marks=pytest.mark.thorough)],
)
def test_all_of_it_under_a_sanitizer(sanitizer, chosen):
    library = subprocess.run(
        ["gcc", f"-print-file-name=lib{sanitizer[0]}san.so"], capture_output=True, text=True, check=True
    )
    environment = {
        **os.environ,
        "LD_PRELOAD": library.stdout.strip(),
        "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1",
        "TSAN_OPTIONS": "exitcode=66",
        "GRAPHC_TEST_SANITIZER": sanitizer,
    }
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:xdist", *FILES, "-k", chosen]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, errors="replace", timeout=600, check=False
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    assert "Sanitizer" not in done.stdout + done.stderr
