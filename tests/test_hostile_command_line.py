"""Command lines that nobody would write: a result, one error, or how the command is used; never a traceback."""

from __future__ import annotations

import os
import random
import warnings
from pathlib import Path

import numpy as np
import pytest
from small_models import dense_model, stored

MODELS = ("m.onnx", "e.gguf")

VALUES = (
    "", "0", "-1", "1", "2", "9" * 20, "1e9", "nan", "x", "=", "a=", "=b", "x=x.npy", "x=junk", "x=dir", "x=pipe", "batch=3",
    "batch=0", "batch=2..3", "batch=0..", "batch=" + "9" * 15, "m.onnx", "e.gguf", "junk", "empty", "dir", "pipe", "in.npz",
    "x.npy", "objects.npy", "/dev/null", "/dev/zero", "/nonexistent/x", "f32", "q8_0", "*=q8_0", "w=f16", "[", "*", "cpu",
    "cpu,cpu", "vulkan9", "rpc://x", ":", "256.1.1.1:5", "auto", "1GiB", "-1GiB", "1XiB", "fold", "nope", "%s", "é", "\n",
    "--", "-", "1:2:3", "numpy", "512", "513", "0.5",
)  # fmt: skip

OPTIONS = {
    "run": "--input --inputs --random -o --weights --component --lora --dim --device --memory --threads --fast --without",
    "compile": "-o --cpp --strip-weights --names --dtype --weights --component --dim --without --stop-after",
    "refit": "-o --lora --component --partial",
    "inspect": "--memory --weights --json --dim",
    "check": "--device --dim --json --memory",
    "diff": "--dim --random --reference --tolerance --device",
    "view": "-o --dim",
    "explain": "--dim",
    "doctor": "--record --json",
    "demo": "--digit -o --threads",
    "build": "--backend --target --cpu",
}


@pytest.mark.parametrize(
    "count", [pytest.param(80, id="few"), pytest.param(5000, id="many", marks=pytest.mark.thorough)]
)
def test_command_lines(graphc_command, tmp_path: Path, count: int) -> None:
    stored(dense_model(), tmp_path / "m.onnx")
    assert graphc_command("compile", "m.onnx", "-o", "e.gguf").status == 0
    np.save("x.npy", np.ones((3, 3), np.float32))
    np.savez("in.npz", x=np.ones((3, 3), np.float32))
    np.save("objects.npy", np.array([1, "a"], object))
    (tmp_path / "junk").write_bytes(random.Random(0).randbytes(300))
    (tmp_path / "empty").touch()
    (tmp_path / "dir").mkdir()
    if hasattr(os, "mkfifo"):
        os.mkfifo("pipe")
    kept = {name: (tmp_path / name).read_bytes() for name in MODELS}
    chance, statuses = random.Random(5), set()
    for _ in range(count):
        command = chance.choice(list(OPTIONS))
        arguments = (
            [command]
            if command in ("doctor", "demo")
            else [command, chance.choice((*MODELS, *MODELS, *MODELS, *VALUES))]
        )
        for option in chance.choices(OPTIONS[command].split(), k=chance.choice((0, 1, 1, 2))):
            arguments += [option] if chance.random() < 0.1 else [option, chance.choice(VALUES)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            done = graphc_command(*arguments)
        assert done.status in (0, 1, 2), arguments
        assert "Traceback" not in done.err, arguments
        assert done.status == 0 or done.err or done.out, arguments
        statuses.add(done.status)
        for name, content in kept.items():  # an output may have been written over a model
            (tmp_path / name).write_bytes(content)
    assert statuses == {0, 1, 2}


@pytest.mark.parametrize("command", ["compile", "view"])
def test_the_folder_itself_is_no_model(graphc_command, tmp_path: Path, command: str) -> None:
    done = graphc_command(command, ".")
    assert done.status == 1
    assert done.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
