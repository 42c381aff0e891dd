"""Pictures beside stable-diffusion.cpp and diffusers: seconds from process start and of a warm pipeline, and peak memory.

    python benchmarks/images.py --work DIR --sd PATH/TO/sd                            # Stable Diffusion 1.5, 512 x 512, 20 steps
    python benchmarks/images.py --work DIR --sd PATH/TO/sd --models sdxl --size 1024 --batch 1
    python benchmarks/images.py --work DIR --sd PATH/TO/sd --models sd35 flux --steps 1 --batch 1
    python benchmarks/images.py --work DIR --models small --size 64 --steps 1         # whether all of it runs

Seeded weights are written once, as one file in the authors' layout: safetensors of float16, and for Flux dev GGUF of 4 bits
(q4_0). Each runtime is a process of its own, one after the other; all paint the same request with the Euler sampler.
diffusers computes in float32, as it is and with torch.compile and channels last; it is given the tokens, for it has no tables
of its own without a download. It paints neither Stable Diffusion 3.5 nor Flux here, which would take 34 and 66 GB in float32.
stable-diffusion.cpp's warm time is the one that it prints for painting, without loading. All steps take the same time: where few
were asked for, the table says what 20 would take, from the time of a step. Run it on a machine that has nothing else to do.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "images")]

PROMPT, AGAINST = "a red circle left of a blue square on a wooden table", "yellow, blurry"
PROCESS = time.time()
USUAL_STEPS = 20


@dataclass(frozen=True)
class Task:
    """What is painted, of which file, and how often when warm."""

    model: str
    file: str
    size: int
    steps: int
    batch: int
    threads: int
    rounds: int

    @property
    def guidance(self) -> float:
        """Classifier-free guidance; Flux has its own, and takes none."""
        return 1.0 if self.model == "flux" else 7.0


@dataclass
class Result:
    """Seconds to the first picture from the start of the process, of warm ones, and of a warm step (0 if it is not known); bytes
    at the peak; what else was noted."""

    runtime: str
    task: Task
    first: float = 0.0
    warm: list[float] = field(default_factory=list)
    step: float = 0.0
    peak: int = 0
    notes: dict[str, float] = field(default_factory=dict)
    problem: str = ""


def described(name: str) -> Any:
    """A model's tensors and modules (see tests/images/architecture_models.py)."""
    import architecture_models as small
    import original_layouts as original

    from examples.image_engines import table

    if name == "small":
        return small.SMALL["Stable Diffusion 1"]
    prefixed, first = original.prefixed, small.prefixed(small.FIRST, original.vae(128))
    vae = small.Module(small.VAE, table.VAE4, "vae")
    clip = small.Module(small.CLIP, table.CLIP_L, "text_encoder")
    clip_l = original.clip(768, 12, small.VOCABULARY)
    text = {
        **prefixed(small.CLIP_L, original.clip(768, 12, small.VOCABULARY, projection=768)),
        **prefixed(small.T5, original.t5()),
    }
    vae16 = original.vae(latents=16, quantized=False)
    if name == "flux":
        shapes = {**prefixed(small.DENOISER, original.flux()), **prefixed(small.FIRST, vae16), **text}
        return small.Small(small.ROWS["Flux dev"], shapes, {})
    if name == "sd35":
        clip_g = original.clip(1280, 32, small.VOCABULARY, projection=1280)
        shapes = {
            **prefixed(small.DENOISER, original.sd3(places=384, normed=True, dual=13)),
            **prefixed(small.FIRST, vae16),
            **prefixed("text_encoders.clip_g.transformer.", clip_g), **text,
        }  # fmt: skip
        return small.Small(small.ROWS["Stable Diffusion 3.5 medium"], shapes, {})
    if name == "sd15":
        shapes = {
            **prefixed(small.DENOISER, original.unet(**original.SD1)), **first,
            **prefixed("cond_stage_model.transformer.", clip_l),
        }  # fmt: skip
        modules = {"denoiser": small.Module(small.UNET, table.SD1, "unet"), "vae": vae, "clip_l": clip}
        return small.Small(small.ROWS["Stable Diffusion 1"], shapes, modules)
    shapes = {
        **prefixed(small.DENOISER, original.unet(**original.SDXL)), **first,
        **prefixed("conditioner.embedders.0.transformer.", clip_l),
        **prefixed("conditioner.embedders.1.model.", original.openclip(1280, 32, small.VOCABULARY)),
    }  # fmt: skip
    unet = {key: value for key, value in table.SDXL.items() if key != "conditions"}
    modules = {
        "denoiser": small.Module(small.UNET, unet, "unet"), "vae": vae, "clip_l": clip,
        "clip_g": small.Module(small.PROJECTED, table.CLIP_G, "text_encoder_2"),
    }  # fmt: skip
    return small.Small(small.ROWS["Stable Diffusion XL"], shapes, modules)


def write(shapes: Mapping[str, tuple[int, ...]], path: Path) -> None:
    """A file of seeded numbers, tensor by tensor: float16, and q4_0 where a GGUF file has whole blocks of them. One that is there
    is kept."""
    if path.exists():
        return
    draft = path.with_suffix(".part")
    (write_gguf if path.suffix == ".gguf" else write_safetensors)(shapes, draft)
    draft.rename(path)


def write_safetensors(shapes: Mapping[str, tuple[int, ...]], path: Path) -> None:
    """All in float16."""
    header, position = {}, 0
    for name, shape in shapes.items():
        end = position + 2 * prod(shape)
        header[name] = {"dtype": "F16", "shape": list(shape), "data_offsets": [position, end]}
        position = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name, shape in shapes.items():
            file.write(drawn(name, shape).tobytes())


def write_gguf(shapes: Mapping[str, tuple[int, ...]], path: Path) -> None:
    """Matrices of whole blocks in q4_0, of which the same ones come again and again; convolutions in float16, and the rest in
    float32."""
    import gguf

    q4_0 = gguf.GGMLQuantizationType.Q4_0
    writer = gguf.GGUFWriter(path, "flux")
    narrow = {name: len(shape) == 2 and shape[1] % 32 == 0 for name, shape in shapes.items()}
    for name, shape in shapes.items():
        if narrow[name]:
            packed = (*shape[:-1], shape[-1] // 32 * 18)
            writer.add_tensor_info(name, packed, np.dtype(np.uint8), prod(packed), raw_dtype=q4_0)  # type: ignore[arg-type]
        else:
            kind = np.dtype(np.float16 if len(shape) > 1 else np.float32)
            writer.add_tensor_info(name, shape, kind, kind.itemsize * prod(shape))  # type: ignore[arg-type]
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for name, shape in shapes.items():
        if narrow[name]:
            blocks = gguf.quantize(drawn(name, shape, most=1 << 20).astype(np.float32), q4_0)
            writer.write_tensor_data(np.resize(blocks, prod(shape) // 32 * 18))
        else:
            writer.write_tensor_data(drawn(name, shape).astype(np.float16 if len(shape) > 1 else np.float32))
    writer.close()


BLOCK = np.random.default_rng(0).standard_normal(1 << 20).astype(np.float32)


def drawn(name: str, shape: tuple[int, ...], most: int | None = None) -> np.ndarray:
    """Seeded float16 numbers for a tensor, flat: scales near 1, small biases, matrices by what they sum. `most` says how many are
    wanted, if not all."""
    scale, shift = (0.02, 0.0) if len(shape) < 2 else (prod(shape[1:]) ** -0.5, 0.0)
    if "embed" in name:
        scale = 0.02
    elif len(shape) < 2 and "bias" not in name:
        scale, shift = 0.1, 1.0
    numbers = BLOCK * np.float32(scale) + np.float32(shift)
    return np.resize(numbers, min(prod(shape), most or prod(shape))).astype(np.float16)


def between(ends: Sequence[float]) -> float:
    """Seconds of a step, from when steps ended; 0 of fewer than two."""
    return statistics.median(np.diff(ends)) if len(ends) > 1 else 0.0


# What a process does that paints: each gives a function that paints a batch, and what it notes besides


def graphc_images_painter(task: Task) -> tuple[Callable[[], object], Callable[[], dict[str, float]]]:
    """graphc_images, by its command's own way."""
    import graphc_images

    known: dict[str, Any] = {}
    if task.model == "small":  # PyTorch comes with it, which others would be measured with
        import architecture_models as small

        known = {"architectures": [described("small").architecture], "engines": small.ENGINES}
    pipeline = graphc_images.load(task.file, threads=task.threads, **known)
    loaded, inside = pipeline.model.loaded, [0.0]
    run = loaded.run

    def timed(*args: Any) -> Any:
        begin = time.perf_counter()
        try:
            return run(*args)
        finally:
            inside[0] += time.perf_counter() - begin

    loaded.run = timed  # type: ignore[method-assign]
    asked: dict[str, Any] = {
        "negative_prompt": AGAINST, "steps": task.steps, "cfg_scale": task.guidance, "sampler": "Euler", "seed": 1,
        "width": task.size, "height": task.size, "batch_size": task.batch,
    }  # fmt: skip
    notes: dict[str, float] = {}

    def paint() -> object:
        begin, inside[0] = time.perf_counter(), 0.0
        pictures, ends = [], []
        for progress in pipeline.steps(PROMPT, **asked):
            if "start to first step" not in notes:
                notes["start to first step"] = time.time() - PROCESS
            pictures += progress.pictures
            ends.append(time.perf_counter())
        notes["a step"] = between(ends[: task.steps])
        whole = time.perf_counter() - begin
        notes["outside the models"] = 1 - inside[0] / whole
        return pictures

    def more() -> dict[str, float]:
        """Another size, whose graph is built: the first step there less the second one."""
        other = asked | {"width": task.size + 64, "steps": 2, "batch_size": 1, "cfg_scale": 1.0}
        times = [time.perf_counter()]
        for _ in pipeline.steps(PROMPT, **other):
            times.append(time.perf_counter())
        notes["another size"] = max(times[1] - times[0] - (times[2] - times[1]), 0.0)
        return notes

    return paint, more


def diffusers_painter(task: Task, compiled: bool) -> tuple[Callable[[], object], Callable[[], dict[str, float]]]:
    """diffusers in float32."""
    import diffusers
    import torch

    from graphc_images.prompts.chunks import chunk_prompt
    from graphc_images.prompts.encoders import CLIP_L

    torch.set_num_threads(task.threads)
    model = described(task.model)
    modules = {name: model.module(name, Path(task.file)) for name in model.modules}
    scheduler = diffusers.EulerDiscreteScheduler(beta_start=0.00085, beta_end=0.012, beta_schedule="scaled_linear")
    large = "clip_g" in modules
    parts = {
        "unet": modules["denoiser"],
        "vae": modules["vae"],
        "scheduler": scheduler,
        "text_encoder": modules["clip_l"],
    }
    if large:
        parts |= {"text_encoder_2": modules["clip_g"], "tokenizer": None, "tokenizer_2": None}
        pipeline = diffusers.StableDiffusionXLPipeline(**parts)
    else:
        none = dict.fromkeys(("tokenizer", "safety_checker", "feature_extractor"))
        pipeline = diffusers.StableDiffusionPipeline(**parts, **none, requires_safety_checker=False)
    pipeline.set_progress_bar_config(disable=True)
    if compiled:
        pipeline.unet.to(memory_format=torch.channels_last)
        pipeline.vae.to(memory_format=torch.channels_last)
        pipeline.unet = torch.compile(pipeline.unet)
        pipeline.vae.decode = torch.compile(pipeline.vae.decode)

    def told(text: str, name: str) -> dict[str, Any]:
        (chunk,) = chunk_prompt(text, CLIP_L)
        ids = torch.tensor([chunk.ids])
        if not large:
            return {f"{name}embeds": modules["clip_l"](ids).last_hidden_state}
        states = [modules[each](ids, output_hidden_states=True) for each in ("clip_l", "clip_g")]
        joined = torch.cat([each.hidden_states[-2] for each in states], dim=-1)
        return {f"{name}embeds": joined, f"pooled_{name}embeds": states[1].text_embeds}

    notes: dict[str, float] = {}

    def paint() -> object:
        ends: list[float] = []

        def note(_pipeline: Any, _step: int, _time: Any, given: dict[str, Any]) -> dict[str, Any]:
            ends.append(time.perf_counter())
            notes["a step"] = between(ends)
            return given

        with torch.no_grad():
            words = {**told(PROMPT, "prompt_"), **{key.replace("pooled_negative", "negative_pooled"): value
                     for key, value in told(AGAINST, "negative_prompt_").items()}}  # fmt: skip
            return pipeline(
                **words, num_inference_steps=task.steps, guidance_scale=task.guidance, width=task.size, height=task.size,
                num_images_per_prompt=task.batch, generator=torch.Generator().manual_seed(1), callback_on_step_end=note,
            ).images  # fmt: skip

    return paint, lambda: notes


PAINTERS: Mapping[str, Callable[[Task], tuple[Callable[[], object], Callable[[], dict[str, float]]]]] = {
    "graphc": graphc_images_painter,
    "diffusers": lambda task: diffusers_painter(task, compiled=False),
    "diffusers, compiled": lambda task: diffusers_painter(task, compiled=True),
}
SD_CPP = {
    "stable-diffusion.cpp f32": ["--type", "f32"],
    "stable-diffusion.cpp f16": ["--type", "f16"],
    "stable-diffusion.cpp, as stored": [],
}
USUAL_RUNTIMES = (*PAINTERS, "stable-diffusion.cpp f32", "stable-diffusion.cpp f16")
LARGE = ("sd35", "flux")
LARGE_RUNTIMES = ("graphc", "stable-diffusion.cpp, as stored")


def child(runtime: str, task: Task) -> None:
    """Paint, and print a line of JSON after each picture or batch, and at the end."""
    import resource

    paint, more = PAINTERS[runtime](task)
    for _ in range(1 + task.rounds):
        begin = time.perf_counter()
        paint()
        print(json.dumps({"now": time.time(), "took": time.perf_counter() - begin}), flush=True)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << (0 if sys.platform == "darwin" else 10)
    print(json.dumps({"peak": peak, "notes": more()}), flush=True)


def measured(runtime: str, task: Task) -> Result:
    """A runtime in a process of its own."""
    result = Result(runtime, task)
    command = [sys.executable, __file__, "--child", runtime, "--task", json.dumps(asdict(task))]
    begin = time.time()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or len(lines) < 2 + task.rounds:
        result.problem = (done.stderr.strip().splitlines() or ["it ended"])[-1]
        return result
    result.first = lines[0]["now"] - begin
    result.warm = [line["took"] for line in lines[1:-1]]
    result.peak, result.notes = lines[-1]["peak"], lines[-1]["notes"]
    result.step = result.notes.pop("a step", 0.0)
    return result


def measured_sd_cpp(runtime: str, task: Task, program: Path, work: Path) -> Result:
    """stable-diffusion.cpp's command, once for each round."""
    result = Result(runtime, task)
    command = [
        str(program), "-m", task.file, "-p", PROMPT, "-n", AGAINST, "-W", str(task.size), "-H", str(task.size),
        "--steps", str(task.steps), "--cfg-scale", str(task.guidance), "--sampling-method", "euler", "-s", "1",
        "-b", str(task.batch), "-t", str(task.threads), *SD_CPP[runtime], "-o", str(work / "sd.png"),
    ]  # fmt: skip
    for number in range(max(task.rounds, 1)):
        begin = time.time()
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
            assert process.stdout is not None
            said = process.stdout.read()
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            result.problem = (said.strip().splitlines() or ["it ended"])[-1]
            return result
        result.first = result.first if number else time.time() - begin
        painting = re.findall(r"generate_image completed in ([\d.]+)s|completed, taking ([\d.]+)s", said)
        if painting:
            result.warm.append(float(next(filter(None, painting[-1]))))
        result.step = sum(map(float, re.findall(r"sampling completed, taking ([\d.]+)s", said))) / task.steps
        result.peak = max(result.peak, used.ru_maxrss << (0 if sys.platform == "darwin" else 10))
    return result


def say(results: Sequence[Result]) -> None:
    """One table."""
    print("\n| model, batch | runtime | from start | warm | of 20 steps | peak memory | besides |\n|" + " --- |" * 7)
    for each in results:
        head = f"{each.task.model} {each.task.size}, {each.task.steps} steps, {each.task.batch}"
        if each.problem:
            print(f"| {head} | {each.runtime} | {each.problem} | | | | |")
            continue
        warm = f"{statistics.median(each.warm):.2f} s" if each.warm else ""
        notes = ", ".join(
            f"{name} {100 * value:.2f}%" if name.startswith("outside") else f"{name} {value:.2f} s"
            for name, value in each.notes.items()
        )
        more = (USUAL_STEPS - each.task.steps) * each.step
        usual = f"{statistics.median(each.warm) + more:.1f} s" if each.warm and each.step else ""
        peak = f"{each.peak / 2**30:.2f} GiB"
        print(f"| {head} | {each.runtime} | {each.first:.2f} s | {warm} | {usual} | {peak} | {notes} |")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, help="a folder for files of weights, which stay there")
    parser.add_argument("--models", nargs="+", choices=("sd15", "sdxl", "sd35", "flux", "small"), default=["sd15"])
    parser.add_argument("--runtime", action="append", help="only this one; may be repeated")
    parser.add_argument("--sd", type=Path, help="stable-diffusion.cpp's program")
    parser.add_argument("--size", type=int, default=512)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, help="also write the numbers to this file")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--task", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.child, Task(**json.loads(options.task)))
        return
    if options.work is None:
        parser.error("--work: say which folder")
    options.work.mkdir(parents=True, exist_ok=True)
    if unknown := set(options.runtime or ()) - {*PAINTERS, *SD_CPP}:
        parser.error(f"--runtime: {', '.join(unknown)}: there are {', '.join([*PAINTERS, *SD_CPP])}")
    results = []
    for model in options.models:
        file = options.work / (f"{model}.gguf" if model == "flux" else f"{model}.safetensors")
        write(described(model).shapes, file)
        usual = LARGE_RUNTIMES if model in LARGE else USUAL_RUNTIMES
        runtimes = options.runtime or [each for each in usual if options.sd or each not in SD_CPP]
        for batch in options.batch:
            task = Task(model, str(file), options.size, options.steps, batch, options.threads, options.rounds)
            for runtime in runtimes:
                sd_cpp = runtime in SD_CPP
                results.append(
                    measured_sd_cpp(runtime, task, options.sd, options.work) if sd_cpp else measured(runtime, task)
                )
                print(f"{runtime}: {results[-1].first:.2f} s {results[-1].problem}", file=sys.stderr, flush=True)
    say(results)
    if options.json:
        options.json.write_text(json.dumps([asdict(each) for each in results], indent=2), encoding="utf-8")


if __name__ == "__main__":
    main()
