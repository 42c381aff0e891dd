"""Runs commands, and writes what they print: the picture of the README, and the samples of `docs/commands.md`.

    python docs/record.py            # both
    python docs/record.py commands   # the samples alone

What is in a sample's first line is run, in a folder with the files of `graphc demo`; what it prints takes the place of the
lines below. So no sample is made up; times are those of the machine that it was run on. Needs the package with its tests'
packages, and a machine that does nothing else.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from io import StringIO
from pathlib import Path

import onnx
from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text
from safetensors.numpy import save_file

DOCS = Path(__file__).parent
SHOWN = ("graphc demo", "graphc run digits.onnx --random 0", "graphc compile digits.onnx -o small.gguf --dtype f16")
"""The commands of the picture."""

SAMPLE = re.compile(r"^```console\n\$ (?P<command>graphc [^\n]*)\n(?P<printed>.*?)^```$", re.DOTALL | re.MULTILINE)
"""A sample: a block whose first line is the command."""

LONGEST = 24
"""Lines of a sample; of longer ones the rest is left out."""


def printed(command: str, folder: Path) -> str:
    """What a command prints, on both streams, in the order of a terminal."""
    print(f"$ {command}", file=sys.stderr, flush=True)
    environment = {
        **os.environ,
        "COLUMNS": "120",
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    done = subprocess.run(
        command,
        shell=True,
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    cache = os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache"))
    return done.stdout.rstrip().replace(str(folder), "/somewhere").replace(cache, "~/.cache")


def prepared(folder: Path) -> Path:
    """A folder with the demonstration's files, and its weights as a checkpoint."""
    printed("graphc demo -o .", folder)
    tensors = map(onnx.numpy_helper.to_array, onnx.load(folder / "digits.onnx").graph.initializer)
    names = [each.name for each in onnx.load(folder / "digits.onnx").graph.initializer]
    weights = {name: array for name, array in zip(names, tensors, strict=True) if array.dtype.kind == "f"}
    save_file(weights, folder / "digits.safetensors")
    return folder


def samples(page: str, folder: Path) -> str:
    """A page with its samples as they are printed now."""

    def again(found: re.Match[str]) -> str:
        lines = printed(found["command"], folder).splitlines()
        lines = lines if len(lines) <= LONGEST else [*lines[: LONGEST - 1], "…"]
        return "\n".join([f"```console\n$ {found['command']}", *(line.rstrip() for line in lines), "```"])

    return SAMPLE.sub(again, page)


def picture(folder: Path) -> str:
    """A terminal in which the commands were typed, as SVG."""
    console = Console(record=True, width=100, file=StringIO(), force_terminal=True)
    for command in SHOWN:
        console.print(Text.assemble(("$ ", "bold green"), (command, "bold")))
        console.print(Text(printed(command, folder)))
        console.print()
    drawn = console.export_svg(title="graphc", theme=MONOKAI, unique_id="graphc")
    return re.sub(r"@font-face \{.*?\}\s*", "", drawn, flags=re.DOTALL)  # fonts that lie on another machine


def main() -> None:
    """Write what is asked for."""
    asked = sys.argv[1:] or ["commands", "picture"]
    with tempfile.TemporaryDirectory() as name:
        folder = prepared(Path(name))
        if "commands" in asked:
            page = DOCS / "commands.md"
            page.write_text(samples(page.read_text(encoding="utf-8"), folder), encoding="utf-8")
        if "picture" in asked:
            (DOCS / "terminal.svg").write_text(picture(folder), encoding="utf-8")


if __name__ == "__main__":
    main()
