"""What a stage of `benchmarks/gpu.py` is given, and how it measures."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

REPEAT, ROUNDS = 20, 7
"""Launches of a graph, and measurements, whose median counts."""


@dataclass(frozen=True)
class Stage:
    """A stage on a device. With `tiny` it only shows that it works; where it `compiles`, PyTorch is measured compiled too.
    Weights lie in the folder `work`, and lines go to the end of the file `output`."""

    name: str
    device: str
    output: Path
    work: Path
    tiny: bool = False
    compiles: bool = False

    @property
    def repeat(self) -> int:
        """Launches of a graph."""
        return 2 if self.tiny else REPEAT

    @property
    def rounds(self) -> int:
        """Measurements."""
        return 1 if self.tiny else ROUNDS

    def note(self, what: str, seconds: float = 0.0, **facts: Any) -> None:
        """A line of the output, written at once: a stage may be killed."""
        line = {"stage": self.name, "device": self.device, "what": what, "seconds": seconds, **facts}
        with self.output.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        print(line_text(line), flush=True)


def line_text(line: dict[str, Any]) -> str:
    """A line for people, without its stage and device: times in ms, with the rate where operations are known."""
    facts = {
        key: value for key, value in line.items() if key not in ("stage", "device", "what", "seconds", "operations")
    }
    words = [str(line["what"])]
    if line["seconds"]:
        words.append(f"{line['seconds'] * 1e3:.4g} ms")
        if "operations" in line:
            words.append(f"({line['operations'] / line['seconds'] / 1e12:.1f} TFLOP/s)")
    return " ".join([*words, *(f"{key} {fact(value)}" for key, value in facts.items())])


def fact(value: Any) -> str:
    """A number with three digits, all else as it is."""
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def timed(run: Callable[[], Any]) -> float:
    """Seconds that it takes."""
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


def median_of(run: Callable[[], Any], rounds: int) -> float:
    """Median seconds, after two runs that do not count: one builds the graph, the next records it."""
    return statistics.median([timed(run) for _ in range(2 + rounds)][2:])


def torch_on_gpu() -> Any:
    """PyTorch; None where it is missing, or has no GPU."""
    try:
        import torch
    except ImportError:
        return None
    return torch if torch.cuda.is_available() else None


def torch_seconds(run: Callable[..., Any], *given: Any, repeat: int = REPEAT) -> float:
    """Seconds of a call on the GPU, of many in a row, by its events."""
    import torch

    found = []
    with torch.inference_mode():
        for _ in range(5):
            run(*given)
        for _ in range(ROUNDS):
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            for _ in range(repeat):
                run(*given)
            end.record()
            torch.cuda.synchronize()
            found.append(begin.elapsed_time(end) / 1000 / repeat)
    return statistics.median(found)


def captured(run: Callable[..., Any], given: Sequence[Any]) -> Callable[..., Any]:
    """A call of PyTorch's as a graph of CUDA's, recorded with what it was given, which does not wait for Python."""
    import torch

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.inference_mode(), torch.cuda.stream(stream):
        for _ in range(3):  # what is chosen and allocated once
            run(*given)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.inference_mode(), torch.cuda.graph(graph):
        run(*given)
    return lambda *_: graph.replay()
