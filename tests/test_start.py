"""What starting a model imports: only what every model needs, since the rest takes longer than all of that."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ENGINES = Path(__file__).parent / "engines/1"
ADDED = ("graphc.runtime.added", "graphc.weights.lora", "graphc.weights.embeddings", "graphc.weights.checkpoint")
KERNELS = ("graphc.kernels.c.render", "graphc.kernels.scalar", "graphc.kernels.vectors", "graphc.ops.norm")
SOME = (
    "graphc.backends.launches",
    "graphc.ir.numbers",
    "graphc.ops.control",
    "graphc.targets.ggml.program.launch",
    "graphc.targets.ggml.run.memory.streams",
    "concurrent.futures",
    "importlib.resources",
    "logging",
    "socket",
)
"""What models need that run on other devices, or have branches and loops; and modules of Python's that take long."""
NEVER = ("graphc.compiler", "graphc.frontend", "graphc.backends.install", "onnx", "typer", "rich")


def imported(code: str) -> list[str]:
    """The modules that are there after some code in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", f"import sys, graphc\n{code}\nprint(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split()


@pytest.mark.parametrize(
    ("code", "missing", "there"),
    [
        ("", (*ADDED, *KERNELS, *SOME, *NEVER, "numpy"), ()),
        (f"graphc.load({str(ENGINES / 'layers.gguf.gz')!r})", (*ADDED, *KERNELS, *SOME, *NEVER), ()),
        (
            f"graphc.load({str(ENGINES / 'integers.gguf.gz')!r})",
            (*ADDED, *NEVER, "graphc.ops.attention"),
            ("graphc.ops.quantized",),
        ),
        (f"graphc.load({str(ENGINES / 'layers.gguf.gz')!r}).unload_lora()", NEVER, ADDED[:2]),
    ],
    ids=["import", "layers", "kernels", "loras"],
)
def test_what_is_imported(code: str, missing: tuple[str, ...], there: tuple[str, ...]) -> None:
    found = set(imported(code))
    assert found.isdisjoint(missing)
    assert found.issuperset(there)


def test_dataclasses_of_what_starts_are_records() -> None:
    """`dataclasses` takes four times as long to define one, which was a tenth of a start."""
    code = f"""
import dataclasses
graphc.load({str(ENGINES / "integers.gguf.gz")!r})
found = {{each for module in list(sys.modules.values()) if module.__name__.startswith("graphc")
         for each in vars(module).values() if isinstance(each, type) and dataclasses.is_dataclass(each)}}
slow = [each.__name__ for each in found if each.__dataclass_params__.frozen]
assert len(found) > 50
assert slow == ["Atom"], slow  # the one with an order
"""
    imported(code)
