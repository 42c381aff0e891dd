"""The runtimes that a benchmark can put side by side: how each makes a model ready to run, where it is installed."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from graphc.errors import GraphcError, InputError
from graphc.targets.ggml.run.device.options import Memory

if TYPE_CHECKING:
    from graphc.runtime.model import Model

Run: TypeAlias = Callable[[], Mapping[str, np.ndarray]]


@dataclass(frozen=True)
class Task:
    """A model to run: an ONNX file, the inputs in its order, the names of its outputs, threads, what makes the same
    model in PyTorch (see `torch_module`), if anything does, what compiling it is told of rules, passes and types, where graphc
    runs it, the engine that it runs instead, if one is given, and whether others never compute between its runs."""

    path: Path
    inputs: Mapping[str, np.ndarray]
    outputs: tuple[str, ...]
    threads: int
    torch: str = ""
    without: Sequence[str] = ()
    stop_after: int | None = None
    device: str = "cpu"
    memory: Memory = None
    kernels: Path | None = None
    trust_kernels: bool = False
    steady: Sequence[str] = ()
    fast: bool = False
    dtype: Sequence[str] = ()
    engine: Path | None = None
    alone: bool = False


@dataclass(frozen=True)
class Peer:
    """A runtime: the package that it needs, how it makes a model ready, whether it starts from PyTorch, and whether it is the
    same as graphc on other devices than the CPU."""

    package: str
    prepare: Callable[[Task], Run]
    from_torch: bool = False
    of_cpu: bool = False

    @property
    def takes_engines(self) -> bool:
        """True if it runs engine files."""
        return self.package == "graphc"

    @property
    def installed(self) -> bool:
        """True if its package is there."""
        return find_spec(self.package) is not None


def _graphc(task: Task) -> Run:
    model = _engine(task)
    return lambda: model.run(task.inputs)


def _ggml(task: Task) -> Run:
    """The same program, with ggml's own products."""
    model = _engine(task)
    model.executor.uses_own = False
    return lambda: model.run(task.inputs)


def _engine(task: Task) -> Model:
    """The engine of a model, mapped. Another process writes it, so that this one's memory is that of a program that runs it."""
    import graphc

    graphc.set_float32_matmul_precision("high" if task.fast else "highest")
    load = partial(
        graphc.load,
        device=task.device,
        threads=task.threads,
        memory=task.memory,
        kernels=task.kernels,
        trust_kernels=task.trust_kernels,
        steady=task.steady,
    )
    if task.engine is not None:
        return load(task.engine)
    with tempfile.TemporaryDirectory(prefix="graphc-bench-", ignore_cleanup_errors=True) as folder:
        engine = Path(folder) / "model.gguf"
        command = [sys.executable, "-m", "graphc.cli", "compile", str(task.path.absolute()), "-o", str(engine)]
        command += [f"--without={name}" for name in task.without] + [f"--dtype={type}" for type in task.dtype]
        command += [] if task.stop_after is None else [f"--stop-after={task.stop_after}"]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
        if done.returncode != 0:
            raise GraphcError(done.stderr.strip())
        return load(engine)


def _onnxruntime(task: Task) -> Run:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = task.threads
    options.log_severity_level = 4
    if not task.alone:
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # between runs the others compute
    session = onnxruntime.InferenceSession(str(task.path), options, ["CPUExecutionProvider"])
    return lambda: _named(task, session.run(task.outputs, dict(task.inputs)))


def _openvino(task: Task) -> Run:
    import openvino

    settings = {"INFERENCE_NUM_THREADS": task.threads, "INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY"}
    model = openvino.Core().compile_model(task.path, "CPU", settings)
    return lambda: _named(task, [array.copy() for array in model(dict(task.inputs)).values()])


def _ggml_python(task: Task) -> Run:
    """The ONNX runtime that comes with ggml-python."""
    os.environ["GGML_NO_BACKTRACE"] = "1"  # it crashes often enough
    import ggml
    import onnx
    from ggml.contrib.onnx import GgmlRuntimeBackend

    model = GgmlRuntimeBackend.prepare(onnx.load(task.path))
    ggml.ggml_backend_cpu_set_n_threads(model.ggml_backend, task.threads)
    return lambda: _named(task, model.run(dict(task.inputs)))


def _torch(task: Task) -> Run:
    module = torch_module(task.torch)
    return _torch_run(task, module)


def _torch_compiled(task: Task) -> Run:
    """Compiled when it is made ready, not in the first run."""
    import torch

    run = _torch_run(task, torch.compile(torch_module(task.torch)))
    run()
    return run


def _torch_run(task: Task, module: Any) -> Run:
    import torch

    torch.set_num_threads(task.threads)
    inputs = [torch.from_numpy(np.array(array)) for array in task.inputs.values()]

    def run() -> Mapping[str, np.ndarray]:
        with torch.inference_mode():
            return _named(task, [tensor.numpy() for tensor in _tensors(module(*inputs))])

    return run


def torch_module(origin: str) -> Any:
    """The PyTorch module that `MODULE:NAME` makes: NAME of the Python module is called, and gives it, or a tuple with it first.

    Python modules are looked for in the current folder too. Raises InputError.
    """
    name, colon, attribute = origin.partition(":")
    if not colon or not name or not attribute:
        raise InputError(f"--torch {origin}: must be MODULE:NAME, a Python module and what makes the model there")
    sys.path.insert(0, os.getcwd())
    try:
        maker: Any = import_module(name)
        for part in attribute.split("."):
            maker = getattr(maker, part)
    except (ImportError, AttributeError) as error:
        raise InputError(f"--torch {origin}: {error}") from error
    finally:
        sys.path.pop(0)
    made = maker()
    return made[0] if isinstance(made, tuple) else made


def _tensors(result: Any) -> Iterable[Any]:
    """The tensors of what a module returns, in order."""
    if isinstance(result, Mapping):
        result = tuple(result.values())
    if isinstance(result, tuple | list):
        return [tensor for each in result for tensor in _tensors(each)]
    return [] if result is None else [result]


def _named(task: Task, arrays: Iterable[Any]) -> dict[str, np.ndarray]:
    return {name: np.asarray(array) for name, array in zip(task.outputs, arrays, strict=True)}


PEERS: Mapping[str, Peer] = {
    "graphc": Peer("graphc", _graphc),
    "graphc, ggml's products": Peer("graphc", _ggml, of_cpu=True),
    "onnxruntime": Peer("onnxruntime", _onnxruntime),
    "openvino": Peer("openvino", _openvino),
    "torch": Peer("torch", _torch, from_torch=True),
    "torch.compile": Peer("torch", _torch_compiled, from_torch=True),
    "ggml-python": Peer("ggml", _ggml_python),
}
"""Each by its name."""


def chosen_peers(wanted: Iterable[str] | None, torch: str, only_cpu: bool = True) -> dict[str, Peer]:
    """The runtimes that can run, in the table's order: those that are wanted, or else all that are installed. Raises
    InputError for one that is not there or cannot start from what is given, or that is of the CPU where not `only_cpu`."""
    if wanted is None:
        there = {name: peer for name, peer in PEERS.items() if peer.installed and (only_cpu or not peer.of_cpu)}
        return {name: peer for name, peer in there.items() if torch or not peer.from_torch}
    if unknown := sorted(set(wanted) - PEERS.keys()):
        raise InputError(f"no runtime is called {', '.join(unknown)}; there are: {', '.join(PEERS)}")
    chosen = {name: peer for name, peer in PEERS.items() if name in wanted}
    for name, peer in chosen.items():
        if not peer.installed:
            raise InputError(f"{name} is not installed")
        if peer.of_cpu and not only_cpu:
            raise InputError(f"{name} is a way of the CPU; on another device it is the same as graphc")
        if peer.from_torch and not torch:
            raise InputError(f"{name} needs --torch MODULE:NAME, which makes the model in PyTorch")
    return chosen
