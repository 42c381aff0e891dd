"""Our own threads (`runner.c`): the results of one thread, whatever holds threads up, and as many runs at once as one likes."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from frontend_models import model, node, value

import graphc
from graphc.errors import GraphcError
from graphc.ggml_library import ggml_folder
from graphc.targets.ggml.run.choose.library import c_tools, source

HERE = Path(__file__).parent
RANDOM = np.random.default_rng(5)


def fuzzer(folder: Path, *flags: str) -> Path:
    """The program `runner_fuzz.c`."""
    tools = c_tools()
    assert tools is not None
    text = "".join(
        (
            (HERE / "runner_held_up.h").read_text(),
            source(("own/tiles.h", "runner.c")),
            (HERE / "runner_fuzz.c").read_text(),
        )
    )
    (folder / "fuzz.c").write_text(text)
    libraries = ggml_folder / "lib"
    linked = [f"-L{libraries}", f"-Wl,-rpath,{libraries}", "-lggml", "-lggml-cpu", "-lggml-base", "-lpthread", "-lm"]
    command = ["gcc", "-std=gnu11", "-g", "-O1", *flags, f"-I{tools[1]}", "fuzz.c", "-o", "fuzz", *linked]
    subprocess.run(command, cwd=folder, check=True)
    return folder / "fuzz"


@pytest.mark.parametrize(("flags", "graphs"), [((), 60), (("-fsanitize=thread",), 12)])
def test_random_graphs_while_threads_are_held_up(flags: tuple[str, ...], graphs: int, tmp_path: Path) -> None:
    command = [str(fuzzer(tmp_path, *flags)), "1", "3", str(graphs), "20"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "0 failures\n", "")


def branches(width: int) -> tuple[list[object], dict[str, np.ndarray]]:
    """Products that do not read one another, and their sum."""
    weights = {f"w{i}": RANDOM.random((64, 64), np.float32) for i in range(width)}
    nodes = [node("MatMul", f"x w{i}", f"p{i}") for i in range(width)]
    return [*nodes, node("Sum", " ".join(f"p{i}" for i in range(width)), "y")], weights


def loaded(folder: Path, width: int, threads: int, **more: int) -> graphc.Model:
    """`branches`, on so many threads."""
    nodes, weights = branches(width)
    proto = model(nodes, [value("x", ["n", 64], np.float32)], ["y"], weights)
    graphc.compile(proto, folder / "model.gguf")
    return graphc.load(folder / "model.gguf", threads=threads, **more)


@pytest.mark.parametrize("threads", [2, 3, 17, 48, 49, 200])
def test_the_bits_do_not_depend_on_threads(threads: int, tmp_path: Path) -> None:
    many = loaded(tmp_path, 9, threads)
    one = graphc.load(tmp_path / "model.gguf", threads=1)
    for rows in (1, 2, 40, 300):
        x = RANDOM.random((rows, 64), np.float32)
        expected = one.run(x=x)["y"]
        for _ in range(5):
            np.testing.assert_array_equal(many.run(x=x)["y"], expected)


def test_runs_at_once_on_few_threads(tmp_path: Path) -> None:
    shared = loaded(tmp_path, 6, 3, contexts=4)
    inputs = [RANDOM.random((30 + i, 64), np.float32) for i in range(8)]
    expected = [shared.run(x=x)["y"] for x in inputs]
    wrong: list[int] = []

    def run(number: int) -> None:
        for _ in range(40):
            if not np.array_equal(shared.run(x=inputs[number])["y"], expected[number]):
                wrong.append(number)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(inputs))]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not wrong


def test_a_run_that_was_stopped_leaves_nothing_behind(tmp_path: Path) -> None:
    shared = loaded(tmp_path, 12, 4)
    x = RANDOM.random((400, 64), np.float32)
    expected = shared.run(x=x)["y"]
    stopped = 0
    for after in range(14):  # questions; there are fewer where other threads were faster
        asked = iter(range(after))
        try:
            shared.executor.run({"x": x}, {"n": 400}, stopped=lambda asked=asked: next(asked, None) is None)
        except GraphcError as error:
            assert str(error) == "the run was stopped"  # noqa: PT017
            stopped += 1
        np.testing.assert_array_equal(shared.run(x=x)["y"], expected)
    assert stopped


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no process is forked")
def test_a_process_that_was_forked_has_threads_of_its_own(tmp_path: Path) -> None:
    shared = loaded(tmp_path, 9, 4)
    x = RANDOM.random((200, 64), np.float32)
    expected = shared.run(x=x)["y"]
    for _ in range(5):
        child = os.fork()
        if child == 0:
            same = all(np.array_equal(shared.run(x=x)["y"], expected) for _ in range(20))
            os._exit(0 if same else 1)
        np.testing.assert_array_equal(shared.run(x=x)["y"], expected)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_threads_sleep_where_nothing_is_computed(tmp_path: Path) -> None:
    shared = loaded(tmp_path, 9, 4)
    shared.run(x=RANDOM.random((200, 64), np.float32))
    time.sleep(0.1)
    before = time.process_time()
    time.sleep(0.5)
    assert time.process_time() - before < 0.1
