"""Kernels' text to PTX for every target, by each compiler that is here, and what NVIDIA's assembler says of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from convolutions import CONVOLUTION

from graphc.errors import BuildError
from graphc.kernels.gpu import assemble, code
from graphc.kernels.gpu import compile as gpu_compile
from graphc.kernels.gpu.assemble import find_assembler
from graphc.kernels.gpu.code import code_for
from graphc.kernels.gpu.compile import TARGETS, TOOLCHAINS, compile_ptx
from graphc.kernels.gpu.dialect import FOLDER
from graphc.kernels.gpu.registers import Resources, parsed, resources

EVERY = (Path(__file__).parent / "programs" / "every_function.cu").read_text()

needs_assembler = pytest.mark.skipif(find_assembler() is None, reason="ptxas is not installed (nvidia-cuda-nvcc)")
here = [
    pytest.param(name, marks=pytest.mark.skipif(find() is None, reason=f"{name} is not installed"))
    for name, find in TOOLCHAINS.items()
]


def instructions(ptx: str) -> list[str]:
    """The instructions of warps and copies, in order."""
    return re.findall(r"^\s*((?:mma|ldmatrix|cp\.async|shfl|vote|red|atom|discard)\.[\w.]+)", ptx, re.MULTILINE)


@pytest.mark.parametrize("target", TARGETS)
def test_clang_compiles_for_every_target(target):
    if TOOLCHAINS["clang"]() is None:
        pytest.skip("ziglang is not installed")
    ptx = compile_ptx(CONVOLUTION, target, "clang")
    assert f".version {TARGETS[target].version}\n" in ptx
    assert f".target {target}\n" in ptx
    assert ".maxntid 256" in ptx
    assert ".minnctapersm 2" in ptx
    assert "call" not in ptx, "all is inlined"
    assert ".local" not in ptx, "registers are registers"
    found = instructions(ptx)
    old = target == "sm_75"
    products = (
        "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32"
        if old
        else "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
    )
    assert found.count(products) == (64 if old else 32)
    assert found.count("ldmatrix.sync.aligned.m8n8.x4.shared.b16") == 12
    assert found.count("cp.async.cg.shared.global") == (0 if old else 4)
    assert ("ld.global.v4" in ptx) == old


@pytest.mark.parametrize("toolchain", here)
@pytest.mark.parametrize("target", ["sm_75", "sm_80", "sm_90a"])
def test_every_function_compiles(toolchain, target):
    defined = {"sm_75": "", "sm_80": "#define AMPERE\n", "sm_90a": "#define AMPERE\n#define HOPPER\n"}
    text = defined[target] + EVERY
    ptx = compile_ptx(text, target, toolchain)
    found = instructions(ptx)
    assert sum(each.startswith("ldmatrix") for each in found) == 6
    assert sum(each.startswith("shfl") for each in found) >= 4
    assert sum(each.startswith("cp.async") for each in found) == (0 if target == "sm_75" else 5)
    assert ptx.count("wgmma.mma_async") == (4 if target == "sm_90a" else 0)
    assert sum(each.startswith("mma") for each in found) == (10 if target == "sm_75" else 11)
    assert ("discard.global.L2" in found) == (target != "sm_75")
    assert {"red.global.add.f32", "atom.global.add.u32"} <= set(found)
    if find_assembler() is not None:
        assert set(resources(ptx, target)) == {"every_function"}


def test_every_function_of_the_table_is_compiled():
    """README.md names the functions; the program calls each, so all toolchains have it."""
    page = (FOLDER / "README.md").read_text()
    rows = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    listed = "".join([*rows, page[page.index("C's names for float") : page.index("clang has no library")]])
    names = set(re.findall(r"\b(\w+?)(?:_N)?(?:<\w+>)?(?:[`(])", re.sub(r"`(_\w+)", "", listed)))
    names -= {"KERNEL", "_y", "_z", "_8", "_4", "x2", "x4", "x1"}
    assert len(names) > 80
    missing = {name for name in names if not re.search(rf"\b{name}(_\d+)?\b", EVERY)}
    assert not missing


@needs_assembler
@pytest.mark.parametrize("target", TARGETS)
def test_the_assembler_takes_what_clang_wrote(target):
    found = resources(compile_ptx(CONVOLUTION, target, "clang"), target)["convolution"]
    assert found.registers <= 128, "two blocks of 256 threads share 65,536"
    if target != "sm_75":  # which has no asynchronous copies, and holds what it loads in registers
        assert (found.spilled, found.reloaded, found.stack) == (0, 0, 0)


@needs_assembler
def test_code_for_one_architecture_is_assembled_and_kept(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    cubin, ptx = code_for("cuda0", "sm_87", CONVOLUTION)
    assert cubin.startswith(b"\x7fELF")
    assert b".target sm_86\n" in ptx
    assert b"convolution" in cubin
    monkeypatch.setattr(assemble.subprocess, "run", lambda *given, **more: pytest.fail("it is in the cache"))
    assert code_for("cuda0", "sm_87", CONVOLUTION) == [cubin, ptx]


@needs_assembler
def test_code_that_no_later_architecture_runs(monkeypatch):
    asked = []
    monkeypatch.setattr(code, "assembled", lambda ptx, architecture: asked.append(architecture))
    code.images_of("", "sm_90", "sm_90a")
    code.images_of("", "sm_90", "sm_90")
    assert asked == ["sm_90a", "sm_90"]


def test_without_an_assembler_there_is_ptx(monkeypatch):
    monkeypatch.setattr(assemble, "find_assembler", lambda: None)
    (ptx,) = code_for("cuda0", "sm_80", CONVOLUTION)
    assert ptx.endswith(b"\0")


def test_an_assembler_that_is_too_old_is_named(monkeypatch, tmp_path, caplog):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    old = tmp_path / "ptxas"
    old.write_text(
        "#!/bin/sh\necho \"ptxas fatal   : Value 'sm_80' is not defined for option 'gpu-name'\" >&2\nexit 255\n"
    )
    old.chmod(0o755)
    monkeypatch.setattr(assemble, "find_assembler", lambda: old)
    assert len(code_for("cuda0", "sm_80", CONVOLUTION)) == 1
    assert f"{old} cannot be used for sm_80, and the driver compiles PTX itself: ptxas fatal" in caplog.text


def test_what_the_assembler_says_is_read():
    said = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'first' for 'sm_80'
ptxas info    : Function properties for first
    16 bytes stack frame, 12 bytes spill stores, 8 bytes spill loads
ptxas info    : Used 40 registers, used 1 barriers, 16 bytes stack, 432 bytes cmem[0]
ptxas info    : Compiling entry function 'second' for 'sm_80'
ptxas info    : Function properties for second
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 12 registers, used 0 barriers, 1024 bytes smem
"""
    assert parsed(said) == {"first": Resources(40, 12, 8, 16, 0), "second": Resources(12, 0, 0, 0, 1024)}


@pytest.mark.parametrize("toolchain", here)
def test_errors_say_where_in_the_text(toolchain):
    text = "// a comment\nKERNEL(broken, 32, 1, float *x) { store_global(x, no_such_function()); }\n"
    with pytest.raises(BuildError, match=rf"(?s){toolchain} failed on a kernel's text.*kernel[:(]2.*no_such_function"):
        compile_ptx(text, "sm_80", toolchain)


def test_what_is_not_on_an_architecture_is_an_error():
    text = "KERNEL(k, 32, 1, float *x) { float c[4]; unsigned a[4], b[2]; mma_m16n8k16_bfloat16(c, a, b); }\n"
    with pytest.raises(BuildError, match="mma_m16n8k16_bfloat16"):
        compile_ptx(text, "sm_75")


def test_without_a_compiler_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setattr(gpu_compile, "TOOLCHAINS", dict.fromkeys(TOOLCHAINS, lambda: None))
    with pytest.raises(BuildError, match="pip install ziglang"):
        compile_ptx(CONVOLUTION, "sm_80")


def test_a_target_that_is_none():
    with pytest.raises(BuildError, match="there is no target sm_12: it is one of sm_75"):
        compile_ptx(CONVOLUTION, "sm_12")


def test_ptx_is_kept_and_made_again_if_it_is_damaged(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    made = []
    run = gpu_compile._run
    monkeypatch.setattr(gpu_compile, "_run", lambda *given: made.append(1) or run(*given))
    text = "KERNEL(k, 32, 1, float *x) { store_global(x + thread_index(), 1.0f); }\n"
    first = compile_ptx(text, "sm_80")
    assert compile_ptx(text, "sm_80") == first
    assert len(made) == 1
    (file,) = (tmp_path / "graphc" / "ptx").iterdir()
    file.write_text(first + "damaged")
    assert compile_ptx(text, "sm_80") == first
    assert len(made) == 2
    assert compile_ptx(text, "sm_86") != first
