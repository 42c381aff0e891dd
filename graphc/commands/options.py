"""Arguments and options that several commands have, one by one or in groups."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from graphc.errors import InputError
from graphc.shapes.ranges import SizeRange, parse_size
from graphc.targets.ggml.run.device.options import Place, memory_limits

if TYPE_CHECKING:
    from graphc.compiler import Settings
    from graphc.targets.ggml.program.program import Program

Model = Annotated[Path, typer.Argument(help="An ONNX file.", metavar="MODEL", show_default=False)]
ModelOrEngine = Annotated[
    Path, typer.Argument(help="An ONNX file or an engine file.", metavar="MODEL|ENGINE", show_default=False)
]
Dims = Annotated[
    list[str] | None,
    typer.Option(
        "--dim",
        metavar="NAME=SIZE",
        help="Give a named size a value, or a range (64..128:8); may be repeated.",
        show_default=False,
    ),
]
Threads = Annotated[
    int | None, typer.Option(min=1, help="Threads of the CPU; all processors if not given.", show_default=False)
]
Steady = Annotated[
    list[str] | None,
    typer.Option(
        metavar="INPUT",
        help="Keep what is computed of this input alone, which stays the same from run to run; may be repeated.",
        show_default=False,
    ),
]
Checkpoint = Annotated[
    Path | None,
    typer.Argument(help="A file of weights, or a folder with one.", metavar="CHECKPOINT", show_default=False),
]
Weights = Annotated[
    Path | None,
    typer.Option("--weights", metavar="CHECKPOINT", help="Run an engine with these weights.", show_default=False),
]
Component = Annotated[
    str | None,
    typer.Option(
        help="Of a checkpoint with several, the one to take (unet, text_encoder_2); the one that fits if not given.",
        show_default=False,
    ),
]
Dtype = Annotated[
    list[str] | None,
    typer.Option(
        "--dtype",
        metavar="[PATTERN=]TYPE",
        help="Store the weights, or those whose names fit, as f16, bf16, q8_0, q6_k, q4_k, …, or as the checkpoint has them: "
        "checkpoint; may be repeated, the last that fits counts.",
        show_default=False,
    ),
]
Engine = Annotated[
    Path | None,
    typer.Option(
        "--engine", metavar="ENGINE", help="Run this engine of the model instead of compiling it.", show_default=False
    ),
]
Loras = Annotated[
    list[str] | None,
    typer.Option(
        "--lora",
        metavar="FILE[:STRENGTH]",
        help="Add a LoRA (or LoHa, LoKr, DoRA, …) to the weights, 1.0 of it or STRENGTH; may be repeated.",
        show_default=False,
    ),
]
Embeddings = Annotated[
    list[str] | None,
    typer.Option(
        "--embedding",
        metavar="TOKEN=FILE",
        help="Add a token of textual inversion to a text encoder; its ids are printed; may be repeated.",
        show_default=False,
    ),
]
CmakeArgs = Annotated[
    list[str] | None,
    typer.Option(
        "--cmake-arg", metavar="-DNAME=VALUE", help="An argument for cmake; may be repeated.", show_default=False
    ),
]
Jobs = Annotated[
    int | None, typer.Option(min=1, help="Files compiled at once; one a processor if not given.", show_default=False)
]
AllowDifferences = Annotated[
    bool,
    typer.Option(
        "--allow-differences",
        help="Pass over tensors that the model does not have, and keep weights that the checkpoint does not have.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
InputFiles = Annotated[
    list[str] | None,
    typer.Option("--input", metavar="NAME=FILE.npy", help="An input's array; may be repeated.", show_default=False),
]
Gpu = Annotated[
    str | None,
    typer.Option(
        "--gpu",
        metavar="TARGET,...",
        help="GPUs, which need not be here, for which kernels are generated: sm_80 (and every later one of NVIDIA's), sm_90a, …",
        show_default=False,
    ),
]
Dump = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR", help="Write the kernels that were generated for the device to this folder.", show_default=False
    ),
]
InputArchive = Annotated[
    Path | None, typer.Option("--inputs", metavar="FILE.npz", help="Inputs by name.", show_default=False)
]


@dataclass(frozen=True)
class Where:
    """The options that say where a model runs."""

    device: Annotated[
        str,
        typer.Option(
            metavar="NAME,...",
            help="Where to run: cpu, gpu (the first), what `graphc devices` lists, rpc://HOST:PORT, or several, each for a part.",
        ),
    ] = "cpu"
    memory: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE,...",
            help="Memory that each device may use (4GiB, 512MiB, auto); weights that do not fit are streamed in every run.",
            show_default=False,
        ),
    ] = None
    fast: Annotated[
        bool,
        typer.Option(
            "--fast", help="Let float32 be multiplied as float16, TF32 or bfloat16 where the device is faster so."
        ),
    ] = False
    threads: Threads = None
    kernels: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="On a device of generated kernels, take the kernels' texts from this folder, which --dump wrote.",
            show_default=False,
        ),
    ] = None
    trust_kernels: Annotated[
        bool,
        typer.Option(
            "--trust-kernels",
            help="Use the kernels that an engine carries for the GPU. They are programs, so know who made the engine.",
        ),
    ] = False
    steady: Steady = None

    def place(self) -> Place:
        """The place as the library takes it. Decides for the process how exactly devices multiply. Raises InputError."""
        from graphc.backends.precision import set_float32_matmul_precision

        set_float32_matmul_precision("high" if self.fast else "highest")
        memory = memory_limits(self.memory) or None
        return Place(
            self.device,
            self.threads,
            memory,
            kernels=self.kernels,
            trust_kernels=self.trust_kernels,
            steady=self.steady or (),
        )


@dataclass(frozen=True)
class Compiling:
    """The options that say how a model is compiled to be looked at."""

    dim: Dims = None
    without: Annotated[
        list[str] | None,
        typer.Option(metavar="RULE", help="Leave out a rule or pass; may be repeated.", show_default=False),
    ] = None
    stop_after: Annotated[
        int | None,
        typer.Option(
            min=0, metavar="N", help="Apply no rule or pass after the first N applications.", show_default=False
        ),
    ] = None

    def settings(self, model: Path) -> Settings:
        """What the compiler takes. Raises InputError where an engine, which is compiled already, is told of rules."""
        from graphc.compiler import Settings
        from graphc.targets.ggml.engine import is_engine

        if (self.without or self.stop_after is not None) and is_engine(model):
            raise InputError(
                f"{model}: is an engine; --without and --stop-after are for an ONNX file, which is compiled"
            )
        return Settings(dims=parse_dims(self.dim), without=self.without or (), stop_after=self.stop_after)

    @property
    def sizes(self) -> dict[str, int]:
        """The named sizes that get one value, not a range."""
        return {name: size for name, size in parse_dims(self.dim).items() if isinstance(size, int)}

    def free_sizes(self, model: Path, program: Program) -> dict[str, int]:
        """The sizes that the program of a model leaves open: an ONNX file's others were pinned when it was compiled.

        Raises InputError for a name that an engine does not have.
        """
        from graphc.runtime.arrays import check_sizes
        from graphc.shapes import symbols
        from graphc.targets.ggml.engine import is_engine

        if is_engine(model):
            check_sizes(program.inputs, self.sizes)
        there = symbols(*(size for each in program.inputs for size in each.shape))
        return {name: size for name, size in self.sizes.items() if name in there}


def spread(command: Callable[..., None]) -> Callable[..., None]:
    """The command as typer takes it: behind its own options come those of its arguments that are groups, one by one."""
    signature = inspect.signature(command, eval_str=True)
    groups: dict[str, Any] = {
        name: each.annotation for name, each in signature.parameters.items() if is_dataclass(each.annotation)
    }
    fields = {name: inspect.signature(group, eval_str=True).parameters for name, group in groups.items()}

    @functools.wraps(command)
    def spread_out(**given: Any) -> None:
        made = {name: groups[name](**{each: given.pop(each) for each in parts}) for name, parts in fields.items()}
        command(**given, **made)

    own = [each for name, each in signature.parameters.items() if name not in groups]
    parameters = [*own, *(part for parts in fields.values() for part in parts.values())]
    spread_out.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return spread_out


def parse_dims(texts: Sequence[str] | None) -> dict[str, int | SizeRange]:
    """Sizes and ranges by name. Raises InputError for anything but NAME=SIZE and NAME=LOW..HIGH:MULTIPLE."""
    sizes: dict[str, int | SizeRange] = {}
    for text in texts or ():
        name, equals, size = text.rpartition("=")
        if not equals or not name:
            raise InputError(f"--dim {text}: must be NAME=SIZE")
        try:
            sizes[name] = parse_size(size)
        except ValueError as error:
            raise InputError(f"--dim {text}: must be NAME=SIZE; {error}") from error
    return sizes


def parse_loras(texts: Sequence[str] | None) -> list[tuple[Path, float]]:
    """Files and strengths: what follows the last colon, if that is a number, else 1."""
    found = []
    for text in texts or ():
        file, colon, strength = text.rpartition(":")
        try:
            found.append((Path(file), float(strength)) if colon else (Path(text), 1.0))
        except ValueError:
            found.append((Path(text), 1.0))
    return found


def parse_embeddings(texts: Sequence[str] | None) -> dict[str, Path]:
    """Files by token. Raises InputError for anything but TOKEN=FILE, and for a token that is there twice."""
    found: dict[str, Path] = {}
    for text in texts or ():
        token, equals, file = text.partition("=")
        if not token or not equals or not file or token in found:
            raise InputError(
                f"--embedding {text}: must be TOKEN=FILE" + ("; the token is there twice" if token in found else "")
            )
        found[token] = Path(file)
    return found
