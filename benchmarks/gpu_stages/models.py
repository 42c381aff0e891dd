"""The models of Stable Diffusion, whole: a step of the U-Net, the autoencoder's decoder, and pictures.

They are given what a picture's run gives them. Errors are differences from float32 on the CPU, in units of the largest number.
"""

from __future__ import annotations

import json
import multiprocessing
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from gpu_stages.stage import Stage, captured, median_of, torch_on_gpu, torch_seconds
from images import AGAINST, PROMPT, between, described, write

import graphc
import graphc_images
from graphc.runtime.profile import profile, totals

ASKED: Mapping[str, Any] = {"negative_prompt": AGAINST, "cfg_scale": 7.0, "sampler": "Euler", "seed": 1}
SHOWN = 12
"""Kinds of kernels of a profile that get a line, those that take longest."""


def checkpoint(stage: Stage) -> Path | None:
    """The file of seeded weights, which is written once; None is the small model that comes with graphc_images."""
    if stage.tiny:
        return None
    path = stage.work / "sd15.safetensors"
    write(described("sd15").shapes, path)
    return path


@dataclass(frozen=True)
class Call:
    """A model that a pipeline ran, and what it was given."""

    model: graphc.Model
    feed: Mapping[str, np.ndarray]

    @property
    def name(self) -> str:
        """What it is, with the sizes of its first input."""
        return f"{self.model.program.name} {list(next(iter(self.feed.values())).shape)}"


def calls(pipeline: Any, size: int) -> list[Call]:
    """What a picture of one step runs."""
    loaded, found = pipeline.model.loaded, list[Call]()
    run = loaded.run

    def noted(key: Any, feed: Mapping[str, np.ndarray]) -> Any:
        found.append(Call(loaded.there(key), {name: np.array(array) for name, array in feed.items()}))
        return run(key, feed)

    loaded.run = noted
    try:
        pipeline(PROMPT, steps=1, width=size, height=size, **ASKED)
    finally:
        loaded.run = run
    return found


LEAST = 64
"""Pixels along the side of a picture that shows which models there are."""

on_cpu: dict[Path | None, list[graphc.Model]] = {}
"""The models of a file, in the order in which a picture runs them."""


def exact(path: Path | None, number: int, feed: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What one of the models gives on the CPU. That is another process, where `--fast` has not been said."""
    if path not in on_cpu:
        on_cpu[path] = [call.model for call in calls(graphc_images.load(path), LEAST)]
    return on_cpu[path][number].run(feed)


def models(stage: Stage) -> None:
    """For each model of a picture of 512 x 512, and the decoder of one of 1024 x 1024: the time of a run and of its kernels,
    memory, whether three runs have the same bits, the error, and the kernels that take longest."""
    path = checkpoint(stage)
    found = calls(graphc_images.load(path, device=stage.device), LEAST if stage.tiny else 512)
    numbered = {call.name: (number, call) for number, call in reversed(list(enumerate(found)))}
    last, decoder = len(found) - 1, found[-1]
    large = Call(decoder.model, {name: np.tile(array, (1, 1, 2, 2)) for name, array in decoder.feed.items()})
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as other:
        for number, call in (*reversed(numbered.values()), (last, large)):
            measure(stage, call, other.submit(exact, path, number, call.feed).result())


def measure(stage: Stage, call: Call, expected: Mapping[str, np.ndarray]) -> None:
    """The lines of one model. Each of its steps is a line of a file beside the output."""
    runs = [call.model.run(call.feed) for _ in range(3)]
    same = all(np.array_equal(runs[0][name], run[name]) for run in runs for name in run)
    error = max(
        float(np.abs(runs[0][name] - array).max() / max(np.abs(array).max(), 1e-30)) for name, array in expected.items()
    )
    seconds = median_of(lambda: call.model.run(call.feed), stage.rounds)
    steps = profile(call.model, call.feed, rounds=3)
    kernels = sum(each.seconds for each in steps)
    with stage.output.with_suffix(".steps.jsonl").open("a", encoding="utf-8") as file:
        file.writelines(json.dumps({"model": call.name, **asdict(each)}) + "\n" for each in steps)
    stage.note(
        call.name, seconds, kernels_ms=1e3 * kernels, idle=max(0.0, 1 - kernels / seconds), steps=len(steps), error=error,
        same_bits=same, weights_mib=call.model.weight_bytes / 2**20, results_mib=call.model.reserved_bytes / 2**20,
        operations=float(sum(each.operations for each in steps)),
    )  # fmt: skip
    for each in totals(steps, lambda step: f"{step.step} {step.result}")[:SHOWN]:
        stage.note(f"{call.name}: {each.name}", each.seconds, count=each.count, operations=float(each.operations))


def pictures(stage: Stage) -> None:
    """A picture of 512 x 512 in 20 steps: from loading on, again, and a step of it."""
    path, begin = checkpoint(stage), time.perf_counter()
    pipeline = graphc_images.load(path, device=stage.device)
    size, steps = (64, 2) if stage.tiny else (512, 20)
    for which in ("the first picture", "the next picture"):
        ends = []
        for _ in pipeline.steps(PROMPT, steps=steps, width=size, height=size, **ASKED):
            ends.append(time.perf_counter())
        stage.note(which, time.perf_counter() - begin, step_ms=1e3 * between(ends[:steps]))
        begin = time.perf_counter()


def torch_models(stage: Stage) -> None:
    """PyTorch's U-Net and decoder of the same weights, by diffusers, in float16 with channels last: as they are, as a graph of
    CUDA's, which does not wait for the launches of Python, and compiled."""
    torch = torch_on_gpu()
    if torch is None:
        stage.note("PyTorch has no GPU")
        return
    torch.backends.cudnn.benchmark = True
    path, model = checkpoint(stage), described("small" if stage.tiny else "sd15")
    if path is None:
        path = stage.work / "small.safetensors"
        write(model.shapes, path)
    ways: dict[str, Callable[..., Callable[..., Any]]] = {
        "PyTorch": lambda run, given: run,
        "PyTorch, a graph": lambda run, given: captured(run, given),
    }
    if stage.compiles:
        ways["PyTorch, compiled"] = lambda run, given: torch.compile(run, mode="max-autotune")
    for runtime, way in ways.items():
        for name, run, given in torch_parts(torch, model, path):
            timed = way(run, given)
            torch.cuda.reset_peak_memory_stats()
            seconds = torch_seconds(timed, *given, repeat=5)
            stage.note(name, seconds, runtime=runtime, peak_mib=torch.cuda.max_memory_allocated() / 2**20)


def torch_parts(torch: Any, model: Any, path: Path) -> list[tuple[str, Callable[..., Any], list[Any]]]:
    """The two modules, and what they are given."""
    options = {"device": "cuda", "dtype": torch.float16}
    unet, vae = (
        model.module(name, path).to(memory_format=torch.channels_last, **options) for name in ("denoiser", "vae")
    )
    words, size = unet.config.cross_attention_dim, unet.config.sample_size
    latents, time_step = (
        torch.randn(2, unet.config.in_channels, size, size, **options),
        torch.tensor(500.0, device="cuda"),
    )
    told = torch.randn(2, 77, words, **options)
    return [
        ("U-Net", lambda *given: unet(*given, return_dict=False), [latents, time_step, told]),
        ("VAE decoder", lambda x: vae.decode(x, return_dict=False), [latents[:1]]),
    ]
