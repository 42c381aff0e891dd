"""Devices of other processes, over loopback. ggml's RPC backend is built once for the session, in a cache of its own."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import onnx
import pytest
from suite.quick_cpp import build_quickly
from test_memory import deep_model

import graphc
from graphc.backends.guard import TIMEOUT, ServerLost, guarded
from graphc.backends.install import ENDINGS
from graphc.backends.rpc import PROTOCOL, Address, Servers, connect, greet
from graphc.cache import cache_folder
from graphc.cmake import find_cmake
from graphc.errors import GraphcError, InputError
from graphc.ggml_library import ggml
from graphc.ggml_source import ggml_source
from graphc.targets.ggml.run.choose.library import load_own
from graphc.targets.ggml.run.device.options import memory_limits

pytestmark = pytest.mark.slow

CLIENT = """
import json, sys
import numpy as np
import graphc
path, device, memory, runs = sys.argv[1:]
feed = {"rows": np.arange(5)}
model = graphc.compile(path)
expected = model.run(feed)
try:
    model = graphc.compile(path, device=device, memory=memory or None)
    for run in range(int(runs)):
        worst = max(float(np.abs(array - expected[name]).max()) for name, array in model.run(feed).items())
        print(json.dumps({"worst": worst, "places": model.executor.fitting.text()}), flush=True)
except graphc.GraphcError as error:
    print(json.dumps({"error": str(error)}), flush=True)
    graphc.compile(path).run(feed)
    try:
        model.run(feed)
    except graphc.GraphcError as error:
        print(json.dumps({"again": str(error)}), flush=True)
"""

GRAPHC = (sys.executable, "-c", "from graphc.cli import main; main()")

SECONDS = 60


@pytest.fixture(scope="session")
def environment(tmp_path_factory):
    """Variables with which a process finds the backend."""
    cache = tmp_path_factory.mktemp("cache")
    source = ggml_source()
    kept = cache / "graphc"
    (kept / "ggml").mkdir(parents=True)
    shutil.copytree(source, kept / "ggml" / source.name, symlinks=True, copy_function=os.link)
    load_own()  # takes a minute where it is not in the cache
    (kept / "kernels").mkdir()
    for library in cache_folder("kernels").glob("[!.]*.so"):  # not what another process is about to compile
        os.link(library, kept / "kernels" / library.name)
    variables = {**os.environ, "XDG_CACHE_HOME": str(cache), "OMP_WAIT_POLICY": "passive"}
    command = [*GRAPHC, "backend", "install", "rpc"]
    subprocess.run(command, env=variables, check=True, timeout=600, capture_output=True)
    return variables


@pytest.fixture
def model(tmp_path):
    onnx.save(deep_model(), tmp_path / "deep.onnx")
    return tmp_path / "deep.onnx"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return found.getsockname()[1]


@contextlib.contextmanager
def serving(environment, *arguments):
    """A server of the CPU; its process and the address of its device."""
    port = free_port()
    command = [*GRAPHC, "serve-device", "--port", str(port), "--threads", "1", *arguments]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        until = time.monotonic() + SECONDS
        while time.monotonic() < until and process.poll() is None:
            with contextlib.suppress(GraphcError):
                greet(Address("127.0.0.1", port))
                break
            time.sleep(0.05)
        yield process, f"rpc://127.0.0.1:{port}"
    finally:
        process.kill()
        process.communicate(timeout=SECONDS)


def client(environment, model, device, memory="", runs=2):
    """What a process says that runs the model there."""
    command = [sys.executable, "-c", CLIENT, str(model), device, memory, str(runs)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize(("memory", "said"), [("", "weights"), ("30KiB", "streamed through 2 x")])
def test_a_model_runs_on_a_server(environment, model, memory, said):
    with serving(environment) as (_, device):
        found = client(environment, model, device, memory)
        assert [each["worst"] < 1e-5 for each in found] == [True, True]
        assert found[-1]["places"][0].startswith(f"{device}: ")
        assert said in found[-1]["places"][0]
        assert client(environment, model, device)[-1]["worst"] < 1e-5, "the server is there for the next program"


def test_every_instrument_works_on_a_server(environment, model):
    with serving(environment) as (_, device):
        for command, said in (
            ("diff MODEL", "no divergence"),
            ("check MODEL", "cannot be asked, and end at what their device cannot"),
            ("profile MODEL --rounds 1", f"copy to {device}"),
            ("bench MODEL --rounds 1 --runtime graphc --runtime onnxruntime", f"graphc on {device},cpu"),
            ("bisect MODEL", "none changes the outputs"),
            ("demo", "accuracy"),
        ):
            words = [str(model) if word == "MODEL" else word for word in command.split()]
            sizes = [] if "demo" in words else ["--dim", "n=3"]
            place = ["--device", f"{device},cpu", "--memory", "24KiB"]
            done = subprocess.run(
                [*GRAPHC, *words, *sizes, *place],
                env=environment,
                cwd=model.parent,
                capture_output=True,
                text=True,
                timeout=SECONDS,
                check=False,
            )
            assert done.returncode == 0, (command, done.stderr)
            assert said in done.stdout, (command, done.stdout)


@pytest.mark.parametrize("memory", ["", "30KiB,34KiB"])
def test_two_servers_share_a_model(environment, model, memory):
    with serving(environment) as (_, one), serving(environment) as (_, other):
        found = client(environment, model, f"{one},{other}", memory)
        assert [each["worst"] < 1e-5 for each in found] == [True, True]
        places = found[-1]["places"]
        assert places[0].startswith(f"{one}: weights 0.0")
        assert places[1].startswith(f"{other}: weights 0.0")


def test_the_cpu_computes_what_a_server_has_no_room_for(environment, model):
    with serving(environment) as (_, device):
        found = client(environment, model, f"{device},cpu", "24KiB")
        assert [each["worst"] < 1e-5 for each in found] == [True, True]
        assert "streamed" not in "".join(found[-1]["places"])
        assert found[-1]["places"][-1].startswith("CPU: weights")


@pytest.mark.parametrize(
    ("how", "said"), [(signal.SIGKILL, "it ended"), (signal.SIGSTOP, "no answer for 2 seconds")], ids=["ends", "hangs"]
)
def test_a_server_that_is_lost_is_an_error(environment, model, how, said):
    environment = {**environment, TIMEOUT: "2"}
    with serving(environment) as (_, one), serving(environment) as (process, other):
        command = [sys.executable, "-c", CLIENT, str(model), f"{one},{other}", "", "1000000"]
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as running:
            assert "worst" in running.stdout.readline()
            process.send_signal(how)
            out, _ = running.communicate(timeout=SECONDS)
        assert running.returncode == 0, "the process goes on"
        first, again = map(json.loads, out.splitlines()[-2:])
        assert again["again"] == first["error"]
        assert first["error"].startswith("lost the server")
        assert other in first["error"]
        assert said in first["error"]
        process.send_signal(signal.SIGCONT)


def test_a_server_has_one_program_at_a_time(environment, model):
    with serving(environment) as (_, device), socket.create_connection(("127.0.0.1", int(device.rsplit(":", 1)[1]))):
        time.sleep(0.2)
        (found,) = client(environment, model, device)
        assert "does not answer: the server hangs, or serves another program" in found["error"]


def test_a_port_that_is_taken_and_a_host_that_is_none(environment):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        command = [*GRAPHC, "serve-device", "--port", str(taken.getsockname()[1])]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False)
        assert (done.returncode, done.stdout.count("\n")) == (1, 0)
        assert "cannot listen on" in done.stderr
    done = subprocess.run([*command, "--host", "here"], capture_output=True, text=True, timeout=SECONDS, check=False)
    assert "must be an IPv4 address" in done.stderr


def test_other_addresses_than_loopback_are_warned_of(environment):
    with serving(environment, "--host", "0.0.0.0") as (process, _):
        process.terminate()
        _, err = process.communicate(timeout=SECONDS)
        assert "networks that you trust, and no others" in err


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"", "speaks something else"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "not version"),
        ((28).to_bytes(8, "little") + bytes((3, 6, 0, 0)) + bytes(24), "speaks 3.6.0, not version 4.0.1"),
    ],
    ids=["nothing", "http", "older"],
)
def test_what_is_no_such_server_is_said(answer, said):
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(SECONDS)
        port = server.getsockname()[1]
        with guarded_thread(lambda: reply(server, answer)), pytest.raises(GraphcError, match=said):
            connect(Address("127.0.0.1", port))
    with pytest.raises(GraphcError, match="cannot be reached"):
        connect(Address("127.0.0.1", port))


def reply(server, answer):
    connection, _ = server.accept()
    with connection:
        connection.recv(64)
        connection.sendall(answer)


@contextlib.contextmanager
def guarded_thread(function):
    import threading

    thread = threading.Thread(target=function)
    thread.start()
    yield
    thread.join(SECONDS)


def test_addresses():
    assert Address.parse("rpc://box-1.lan:7") == Address("box-1.lan", 7)
    assert str(Address.parse("rpc://10.0.0.1")) == "rpc://10.0.0.1:50052"
    for wrong in (
        "rpc://",
        "rpc://:5",
        "rpc://a:",
        "rpc://a:0",
        "rpc://a:65536",
        "rpc://a:b",
        "rpc://a b:1",
        "rpc://[::1]:5",
    ):
        with pytest.raises(GraphcError, match="no address of a server"):
            Address.parse(wrong)


def test_the_protocol_is_that_of_the_source():
    header = (ggml_source() / "include" / "ggml-rpc.h").read_text()
    names = ("MAJOR", "MINOR", "PATCH")
    values = [line.split()[2] for name in names for line in header.splitlines() if f"RPC_PROTO_{name}_VERSION " in line]
    assert tuple(map(int, values)) == PROTOCOL


def test_what_is_guarded_raises_as_it_would(monkeypatch):
    assert guarded(lambda: 3) == 3
    with pytest.raises(KeyError):
        guarded(lambda: {}[1])
    monkeypatch.setenv(TIMEOUT, "0.05")
    over = threading.Event()
    with pytest.raises(ServerLost, match=r"no answer for 0\.05 seconds"):
        guarded(over.wait)
    over.set()
    monkeypatch.setenv(TIMEOUT, "soon")
    with pytest.raises(GraphcError, match="must be a number of seconds"):
        guarded(lambda: 3)
    assert Servers(["cpu"]).call(lambda: 4) == 4


def test_what_is_interrupted_ends_before_the_next_begins(monkeypatch):
    def stop(*args):
        raise KeyboardInterrupt

    said, over = [], threading.Event()
    before = signal.signal(signal.SIGALRM, stop)
    try:
        with pytest.raises(KeyboardInterrupt):
            guarded(lambda: (os.kill(os.getpid(), signal.SIGALRM), over.wait(), said.append("first")))
    finally:
        signal.signal(signal.SIGALRM, before)
    assert said == []
    threading.Timer(0.2, over.set).start()
    guarded(lambda: said.append("second"))
    assert said == ["first", "second"]


def test_ggml_giving_up_is_an_error_where_it_is_guarded():
    with pytest.raises(ServerLost, match="nonsense"):
        guarded(lambda: ggml.ggml_abort(b"file.c", 1, b"nonsense"))
    assert guarded(lambda: 5) == 5


def test_without_the_backend_the_command_that_builds_it_is_named(tmp_path, model):
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    command = [*GRAPHC, "serve-device"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 1
    assert "graphc backend install rpc" in done.stderr


PROBE = """
#include "deep/model.h"
#include "graphc/npy.h"

#include <cstdio>
#include <cstdlib>

// ENGINE DEVICE MEMORY COUNT...: runs with so many rows each, writes y.npy for each, and prints what is allocated on devices.
int main(int argc, char ** argv) {
    try {
        graphc::Options options;
        options.device = argv[2];
        options.memory = argv[3];
        options.threads = 1;
        deep::Deep model(argv[1], options);
        for (int run = 4; run < argc; ++run) {
            deep::Inputs inputs;
            inputs.rows = graphc::Array::zeros<int64_t>({std::atoi(argv[run])});
            for (size_t i = 0; i < inputs.rows.size(); ++i) inputs.rows.data<int64_t>()[i] = static_cast<int64_t>(i % 50);
            graphc::save_npy("y" + std::to_string(run - 4) + ".npy", model.run(inputs).y);
            for (size_t bytes : model.memory().allocated()) std::printf("%zu ", bytes);
            std::printf("%s\\n", model.memory().text()[0].c_str());
        }
    } catch (const graphc::Error & error) {
        std::printf("error: %s\\n", error.what());
    }
}
"""


@pytest.fixture(scope="module")
def cpp(tmp_path_factory):
    """The folder of the model's C++ project, built, with its engine and a program that says what it allocates."""
    folder = tmp_path_factory.mktemp("deep")
    graphc.compile(deep_model(), folder / "deep.gguf", cpp=folder / "cpp")
    (folder / "cpp" / "example.cpp").write_text(PROBE)
    build_quickly(folder / "cpp")
    run_cmake_target(folder / "cpp" / "build", "deep-example")
    return folder


def run_cmake_target(folder, name):
    subprocess.run([find_cmake(), "--build", folder, "--target", name], check=True, timeout=600, capture_output=True)


def backend_path(environment):
    """Variables with which a C++ program finds the backend."""
    cache = Path(environment["XDG_CACHE_HOME"])
    (library,) = [path for path in cache.rglob("*ggml-rpc*") if path.suffix in ENDINGS]
    return {**environment, "GGML_BACKEND_PATH": str(library)}


def run_cpp(environment, cpp, folder, *arguments):
    """Run the C++ program for five rows: its status, and what it prints."""
    np.save(folder / "rows.npy", np.arange(5))
    command = [cpp / "cpp" / "build" / "model", "--engine", cpp / "deep.gguf", "--threads", "1", *arguments]
    command += ["--input", f"rows={folder / 'rows.npy'}", "--output", folder]
    done = subprocess.run(command, env=environment, timeout=SECONDS, check=False, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def probe(environment, cpp, folder, device, memory, *counts):
    """What the other program prints, and the results of its runs."""
    command = [cpp / "cpp" / "build" / "example", cpp / "deep.gguf", device, memory, *map(str, counts)]
    done = subprocess.run(
        command, cwd=folder, env=environment, timeout=SECONDS, check=True, stdout=subprocess.PIPE, text=True
    )
    return done.stdout.splitlines(), [np.load(folder / f"y{number}.npy") for number in range(len(counts))]


def test_a_cpp_program_uses_a_server(environment, cpp, tmp_path):
    expected = graphc.compile(deep_model()).run({"rows": np.arange(5)})
    loading = backend_path(environment)
    with serving(environment) as (process, device):
        status, said = run_cpp(loading, cpp, tmp_path, "--device", device)
        assert status == 0, said
        for name, array in expected.items():
            np.testing.assert_allclose(np.load(tmp_path / f"{name}.npy"), array, rtol=1e-5, atol=1e-5)
        status, said = run_cpp(loading, cpp, tmp_path, "--device", f"{device},{device}")
        assert (status, "a device is named twice" in said) == (1, True)
        process.kill()
        process.wait(SECONDS)
        for variables, message in ((loading, f"no server at {device}"), (environment, "need -DGGML_RPC=ON")):
            status, said = run_cpp(variables, cpp, tmp_path, "--device", device)
            assert status == 1
            assert message in said


@pytest.mark.parametrize("kib", [26, 34])
def test_a_cpp_program_streams_weights(environment, cpp, tmp_path, kib):
    loading, counts = backend_path(environment), (3, 20, 3, 7, 20)
    with serving(environment) as (_, device):
        said, expected = probe(loading, cpp, tmp_path, device, "", *counts)
        assert max(int(line.split()[0]) for line in said) > kib << 10, "without a limit it takes more"
        said, found = probe(loading, cpp, tmp_path, device, f"{kib}KiB", *counts)
        assert [int(line.split()[0]) <= kib << 10 for line in said] == [True] * len(counts)
        assert all("streamed through 2 x" in line for line in said)
        for got, array in zip(found, expected, strict=True):
            assert got.tobytes() == array.tobytes()


def test_cpp_and_python_place_weights_alike(environment, cpp, model, tmp_path):
    loading = backend_path(environment)
    with serving(environment) as (_, one), serving(environment) as (_, other):
        devices = {one: ("", "30KiB", "1KiB"), f"{one},{other}": ("30KiB,34KiB",), f"{one},cpu": ("24KiB", "1KiB")}
        for device, memory in [(device, memory) for device, each in devices.items() for memory in each]:
            found = client(environment, model, device, memory, 1)[0]
            _, said = run_cpp(loading, cpp, tmp_path, "--device", device, *(["--memory", memory] if memory else []))
            lines = found.get("places") or [f"error: {found['error']}"]
            assert set(lines) <= set(said.splitlines()), (device, memory)


@pytest.mark.parametrize("count", [3, 20])
def test_several_devices_of_a_cpp_program(environment, cpp, tmp_path, count):
    loading = backend_path(environment)
    with serving(environment) as (_, one), serving(environment) as (_, other):
        _, (expected,) = probe(loading, cpp, tmp_path, one, "", count)
        for device, memory, said in (
            (f"{one},{other}", "", ""),
            (f"{one},{other}", "26KiB,26KiB", "streamed" * (count > 3)),
            (f"{one},{other},cpu", "26KiB,26KiB", "intermediate"),
        ):
            (line,), (found,) = probe(loading, cpp, tmp_path, device, memory, count)
            assert found.tobytes() == expected.tobytes(), line
            used = [int(each) for each in line.split()[:2]]
            assert all(0 < each <= 26 << 10 for each in used) or not memory, line
            assert said in line


def test_limits_of_a_cpp_program_are_read_as_in_python(cpp, tmp_path):
    known = {"4GiB": 1, "4GiB, 1.5 MiB,auto": 3, "8kb": 1, " AUTO ": 1, "7": 1}
    for memory, count in known.items():
        status, said = run_cpp(dict(os.environ), cpp, tmp_path, "--device", "cpu", "--memory", memory)
        assert status == 1
        assert f"error: {count} limits of memory are given for the CPU, which uses weights where they lie\n" in said
    for memory in ("5potatoes", "4 GB iB", "-1", "0", "1e9", "٤GiB", "4TiB", "1GiB,,2GiB", "1.2345MiB", ","):
        status, said = run_cpp(dict(os.environ), cpp, tmp_path, "--device", "cpu", "--memory", memory)
        with pytest.raises(InputError) as caught:
            memory_limits(memory)
        assert (status, said) == (1, f"error: {caught.value}\n")
    status, said = run_cpp(dict(os.environ), cpp, tmp_path, "--device", "cpu,abacus7")
    assert status == 1
    assert "no device 'abacus7'; there is CPU" in said
