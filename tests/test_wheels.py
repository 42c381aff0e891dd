"""Wheels with libraries: which are made, what is in them, and which library is taken where one is installed."""

from __future__ import annotations

import base64
import csv
import ctypes
import hashlib
import io
import json
import os
import platform
import re
import struct
import subprocess
import sys
import venv
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
from packaging.utils import parse_wheel_filename

from graphc.backends import brought as bringing
from graphc.backends import load as loading
from graphc.backends import trial
from graphc.errors import BuildError, GraphcError
from graphc.ggml_library import NAMES, VARIANT, ggml_folder, load_wheel, loaded
from graphc.kernels.c.compiler import find_compiler
from graphc.targets.ggml.run.device.devices import find_device
from graphc.zig import find_zig
from graphc_build import vulkan
from graphc_build.libraries import LINKING, NATIVE
from graphc_build.parts import Part, bill_of_materials, parts_of
from graphc_build.symbols import check_libraries, needs_of
from graphc_build.targets import TARGETS, ZIG, find_target, target_of
from graphc_build.vulkan import INCLUDED, compiled_shaders, copy_headers, license_of, vulkan_library
from graphc_build.wheel import complete
from tests.clean_root import check_pictures, picture_of

ROOT = Path(__file__).parent.parent

METADATA = """\
Metadata-Version: 2.4
Name: graphc
Version: 0.1.0
License-File: LICENSE
Requires-Dist: ggml-python==0.0.45
Requires-Dist: ml-dtypes>=0.5
Requires-Dist: numpy
Requires-Dist: onnx-ir<0.2,>=0.1.16
Requires-Dist: onnx>=1.19
Provides-Extra: compile
Provides-Extra: images
Requires-Dist: pillow>=11; extra == 'images'
"""

LIBRARY = """
int ggml_backend_score(void) {{ return {score}; }}
void * ggml_backend_init(void) {{ static int here; return &here; }}
int registered;
void ggml_backend_register(void * registry) {{ registered = registry == ggml_backend_init(); }}
"""


def test_the_table():
    assert len({each.tag for each in TARGETS.values()}) == len(TARGETS)
    for target in TARGETS.values():
        (tag,) = parse_wheel_filename(f"graphc-0.1.0-py3-none-{target.tag}.whl")[3]
        assert tag.platform == target.tag
        assert target_of(Path(f"graphc-0.1.0-py3-none-{target.tag}.whl")) is target
        assert target.accepted[0] == target.tag
        assert target.processor == ("arm" if target.tag.endswith(("arm64", "aarch64")) else "x86")
        for variant, features in target.variants.items():
            assert set(features) <= set(ZIG)
            assert target.cpu(variant).startswith(target.least)
    with pytest.raises(BuildError, match="no target 'beos'; there is linux-x86_64, "):
        find_target("beos")


def library(path: Path, source: str) -> Path:
    """A library of C source."""
    compiler = find_compiler()
    assert compiler is not None
    text = path.with_suffix(".c")
    text.write_text(source)
    subprocess.run([*compiler, "-shared", "-fPIC", str(text), "-o", str(path)], check=True)
    text.unlink()
    return path


def brought(folder: Path, **scores: int) -> Path:
    """A folder as a wheel has it, with code for processors of these scores."""
    (folder / "lib").mkdir(parents=True)
    for name in ("ggml-base", "ggml"):
        library(folder / "lib" / NAMES.format(name), "int nothing;")
    for name, score in scores.items():
        library(folder / "lib" / NAMES.format(f"ggml-cpu-{name}"), LIBRARY.format(score=score))
    return folder


def test_the_best_for_the_processor_is_taken(tmp_path, monkeypatch):
    folder = brought(tmp_path / "some", old=1, new=20, other=0, better=3)
    found = load_wheel(folder)
    assert found.variant == "new"
    assert found.folder == folder
    assert found.own is not None
    assert found.ggml.symbol("ggml_backend_score")() == 20
    monkeypatch.setenv(VARIANT, "better")
    assert load_wheel(folder).variant == "better"
    monkeypatch.setenv(VARIANT, "other")
    with pytest.raises(
        GraphcError, match="GRAPHC_CPU_VARIANT is 'other'; for this processor there is old, better, new"
    ):
        load_wheel(folder)


def test_a_processor_that_is_too_old(tmp_path):
    with pytest.raises(GraphcError, match="of none of the kinds that graphc's wheel has code for: avx, sse"):
        load_wheel(brought(tmp_path / "new", sse=0, avx=0))
    with pytest.raises(GraphcError, match="has code for: none"):
        load_wheel(brought(tmp_path / "empty"))


TOO_OLD = """
import os, sys, graphc
from graphc.cli import main
from graphc.errors import GraphcError

class Old:
    def find_spec(self, name, path=None, target=None):
        if name == "graphc.ggml_library":
            raise GraphcError("this processor is too old")
        if name == "numpy":
            os._exit(132)

sys.meta_path.insert(0, Old())
if sys.argv[1:]:
    main(sys.argv[1:])
else:
    try:
        graphc.load("x.gguf")
    except GraphcError as error:
        sys.exit(f"error: {error}")
"""
"""A command where ggml's libraries refuse the processor, and NumPy's end the process."""


@pytest.mark.parametrize(
    "command", ["run x.gguf", "compile x.onnx -o y.gguf", "demo", "devices", "image x", "doctor", ""]
)
def test_a_processor_that_is_too_old_for_numpy(tmp_path, command):
    words = [sys.executable, "-c", TOO_OLD, *command.split()]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: ")
    assert "this processor is too old" in line


def test_devices_of_a_wheel(graphc_command, monkeypatch):
    """What another build of ggml would do better is no matter where graphc's own code computes."""
    before = graphc_command("devices").out
    monkeypatch.setattr("graphc.ggml_library.loaded", replace(loaded, own=ctypes.CDLL(None), variant="new"))
    after = graphc_command("devices").out
    assert "built with LLAMAFILE" in before
    assert "built with" not in after
    assert "graphc's own, as the wheel has it (new)" in after


def test_a_damaged_wheel(tmp_path):
    folder = brought(tmp_path / "damaged", old=1)
    path = folder / "lib" / NAMES.format("ggml-cpu-old")
    path.write_bytes(b"nonsense" * 100)
    with pytest.raises(GraphcError, match=r"ggml-cpu-old.* cannot be loaded: .*; install graphc's wheel again"):
        load_wheel(folder)
    cut = brought(tmp_path / "cut", old=1)
    path = cut / "lib" / NAMES.format("ggml-cpu-old")
    content = path.read_bytes()
    for end in (64, 1000, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:end])
        with pytest.raises(GraphcError, match=r"ggml-cpu-old.* cannot be loaded: .*; install graphc's wheel again"):
            load_wheel(cut)
    other = brought(tmp_path / "other", old=1)
    (other / "lib" / NAMES.format("ggml-base")).unlink()
    with pytest.raises(GraphcError, match=r"ggml-base.* cannot be loaded"):
        load_wheel(other)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="versions of glibc")
def test_a_system_that_is_too_old(tmp_path):
    folder = brought(tmp_path / "newer", old=1)
    path = library(
        folder / "lib" / NAMES.format("ggml-cpu-old"), "int puts(const char *); int f(void) { return puts(0); }"
    )
    content = path.read_bytes()
    assert b"GLIBC_2." in content
    path.write_bytes(content.replace(b"GLIBC_2.", b"GLIBC_9."))
    with pytest.raises(GraphcError, match=r"`GLIBC_9.*' not found.*; this system's C library \(glibc\) is older than"):
        load_wheel(folder)


BARE = """
int DllMainCRTStartup(void *library, unsigned long reason, void *reserved) { return 1; }
int _fltused;
"""
"""What a library for Windows has in the C library's place, which zig would compile for minutes."""


def linked(folder: Path, source: Path, name: str, *more: Path) -> Path:
    """A library of C files for a target, linked as those of a wheel: for other options zig compiles a system anew. Those for
    Windows are without a C library."""
    target = TARGETS[name]
    path = folder / target.library.format(source.stem)
    options = [each.format(name=path.name) for each in LINKING[target.system]]
    command = [find_zig(), "cc", "-target", target.triple, "-fPIC", "-fvisibility=hidden", "-fno-sanitize=all"]
    files = [source, *more]
    if target.system == "windows":
        (folder / "bare.c").write_text(BARE)
        for each in (*files, folder / "bare.c"):
            object = folder / f"{each.stem}.obj"
            subprocess.run([*command, "-fno-stack-protector", "-c", each, "-o", object], check=True)
        files = [folder / f"{each.stem}.obj" for each in (*files, folder / "bare.c")]
        options += ["-nostdlib", "-lkernel32"]
    subprocess.run([*command, "-shared", *files, *options, "-o", path], check=True)
    return path


def changed(path: Path, before: bytes, after: bytes) -> None:
    """Have a file say something else, as long."""
    content = path.read_bytes()
    assert content.count(before) >= 1
    assert len(before) == len(after)
    path.write_bytes(content.replace(before, after))


def test_a_library_that_is_bound_to_a_machine_or_a_newer_system(tmp_path):
    source = tmp_path / "some.c"
    source.write_text('__attribute__((visibility("default"))) int of(void) { return 3; }\n')
    places = {"linux-x86_64": (b"$ORIGIN", b"/opt/my"), "macos-arm64": (b"@rpath/", b"/opt/a/")}
    for name, (before, after) in places.items():
        path = linked(tmp_path, source, name)
        changed(path, before, after)
        with pytest.raises(BuildError, match=r"libsome.* is bound to /opt/"):
            check_libraries([path], TARGETS[name])
    path = linked(tmp_path, source, "macos-arm64")
    platform_and_least = struct.Struct("<II")
    changed(path, platform_and_least.pack(1, 11 << 16), platform_and_least.pack(1, 13 << 16 | 2 << 8))
    with pytest.raises(BuildError, match=r"needs version 13\.2 of its system, macosx_11_0_arm64 promises less"):
        check_libraries([path], TARGETS["macos-arm64"])


def test_a_library_for_macos_on_arm_must_be_signed(tmp_path):
    """zig signs those for ARM, and no others."""
    source = tmp_path / "some.c"
    source.write_text('__attribute__((visibility("default"))) int of(void) { return 3; }\n')
    for name, signed in (("macos-arm64", True), ("macos-x86_64", False)):
        path = linked(tmp_path, source, name)
        assert needs_of(path).signed == signed
        check_libraries([path], TARGETS[name])
    with pytest.raises(BuildError, match="is not signed: macOS loads no such library on ARM"):
        check_libraries([path], TARGETS["macos-arm64"])


EXPORTED = '__attribute__((visibility("default"))) double of(double x)'
OF_C = f"#include <math.h>\n{EXPORTED} {{ return pow(x, 0.3); }}\n"
OF_WINDOWS = f"#include <windows.h>\n__declspec(dllexport) {EXPORTED} {{ return x * GetTickCount(); }}\n"


def test_what_libraries_need(tmp_path):
    """Of each system's format, as zig links them."""
    source = tmp_path / "some.c"
    needed = {
        "linux-x86_64": ("libm.so.6", OF_C),
        "windows-x86_64": ("KERNEL32.dll", OF_WINDOWS),
        "macos-arm64": ("/usr/lib/libSystem.B.dylib", OF_C),
    }
    for name, (expected, text) in needed.items():
        source.write_text(text)
        path = linked(tmp_path, source, name)
        assert expected in needs_of(path).libraries
        assert "of" in needs_of(path).exports
        check_libraries([path], TARGETS[name])
        without = path.rename(path.with_name(path.name.replace("some", "ggml-vulkan")))
        with pytest.raises(BuildError, match=r"ggml-vulkan.* does not export ggml_backend_init$"):
            check_libraries([without], TARGETS[name])
        content = without.read_bytes()
        for cut in (0, 3, 5, 40, 100):
            without.write_bytes(content[:cut])
            with pytest.raises(BuildError, match=r"is damaged|is no library"):
                needs_of(without)
    assert needs_of(Path(sys.executable).resolve()) is not None


VULKAN = """
typedef void (*Function)(void);
Function vkGetInstanceProcAddr(void *, const char *);
void vkCmdCopyBuffer(void *, void *, void *, unsigned, const void *);
void vkGetPhysicalDeviceFeatures2(void *, void *);
__attribute__((visibility("default"))) int ggml_backend_init(void) {
    int answer = ((int (*)(unsigned *))vkGetInstanceProcAddr(0, "vkEnumerateInstanceVersion"))(0);
    if (answer) return answer;
    int features = 0;
    vkGetPhysicalDeviceFeatures2(0, &features);
    vkCmdCopyBuffer(0, 0, &features, 7, 0);
    return features;
}
"""
"""Calls Vulkan by the names by which ggml does."""

LOADER = """
typedef void (*Function)(void);
static int version(unsigned * version) { return 0; }
Function vkGetInstanceProcAddr(void * instance, const char * name) { return (Function)version; }
void vkGetPhysicalDeviceFeatures2(void * device, int * features) { *features = 100; }
void vkCmdCopyBuffer(void * commands, void * from, int * to, unsigned count, const void * regions) { *to += count; }
"""

CALL = "import ctypes, sys; print(ctypes.CDLL(sys.argv[1]).ggml_backend_init())"


@pytest.mark.parametrize("name", ["linux-x86_64", "linux-arm64", "windows-x86_64"])
def test_a_library_for_vulkan_is_linked_without_it(tmp_path, name):
    """For each system, all names are there, and no library of Vulkan's is asked for."""
    source = tmp_path / "ggml-vulkan.c"
    source.write_text(VULKAN)
    path = linked(tmp_path, source, name, NATIVE / "vulkan.c")
    assert not any("vulkan" in each.lower() for each in needs_of(path).libraries)
    check_libraries([path], TARGETS[name])


@pytest.mark.skipif(sys.platform != "linux", reason="the loader's name is Linux'")
def test_vulkan_is_there_or_not(tmp_path):
    """The loader is looked for when it is first called; without it there is no driver, and nothing breaks."""
    backend = library(tmp_path / "libggml-vulkan.so", VULKAN + (NATIVE / "vulkan.c").read_text())
    folders = {"none": tmp_path / "none", "wrong": tmp_path / "wrong", "right": tmp_path / "right"}
    for folder in folders.values():
        folder.mkdir()
    (folders["none"] / "libvulkan.so.1").write_text("no library")
    library(folders["wrong"] / "libvulkan.so.1", "int other;")
    library(folders["right"] / "libvulkan.so.1", LOADER)
    for name, answer in {"none": None, "wrong": -9, "right": 107}.items():
        environment = {**os.environ, "LD_LIBRARY_PATH": str(folders[name])}
        command = [sys.executable, "-c", CALL, str(backend)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        if answer is not None:  # the loader passes over what is no library, and takes the system's if there is one
            assert int(done.stdout) == answer


def test_headers_that_are_too_old_or_not_there(tmp_path, monkeypatch):
    sdk = tmp_path / "sdk" / "include"
    monkeypatch.setenv("VULKAN_SDK", str(sdk.parent))
    for file in INCLUDED.values():
        (sdk / file).parent.mkdir(parents=True, exist_ok=True)
        (sdk / file).write_text("// Copyright 2015-2025 The Khronos Group Inc.\n")
    core = sdk / "vulkan" / "vulkan_core.h"
    for complete_version, patch, fits in ((3, 272, True), (4, 1, True), (3, 271, False), (2, 300, False)):
        core.write_text(
            f"#define VK_HEADER_VERSION {patch}\n"
            f"#define VK_HEADER_VERSION_COMPLETE VK_MAKE_API_VERSION(0, 1, {complete_version}, VK_HEADER_VERSION)\n"
        )
        if fits:
            copy_headers(tmp_path / "headers")
            continue
        with pytest.raises(
            BuildError, match=rf"of version 1\.{complete_version}\.{patch}, older than 1\.3\.272: .*VULKAN_SDK"
        ):
            copy_headers(tmp_path / "headers")
    mit = "MIT License\n\nCopyright (c) others\n\nPermission is hereby granted, to all\n"
    assert license_of(tmp_path / "headers", mit) == (
        "Copyright 2015-2025 The Khronos Group Inc.\n\nPermission is hereby granted, to all\n"
    )


ZIG_STAND_IN = """\
#!{python}
import os, shutil, sys
shutil.copy(sys.argv[-3], sys.argv[-1])
os.chmod(sys.argv[-1], 0o755)
"""
"""Compiles what is a program already."""

GENERATOR = """\
#!{python}
import sys
given = dict(zip(sys.argv[1::2], sys.argv[2::2]))
if "bad" in given.get("--source", ""):
    sys.exit("cannot compile bad")
for option in ("--target-hpp",) if "--source" not in given else ("--target-cpp",):
    open(given[option], "w").write("made")
"""
"""Does what ggml's generator of shaders does, with nothing in them."""


def test_shaders_are_compiled_once(tmp_path, monkeypatch):
    (tmp_path / "cache").mkdir()
    for function in ("cache_folder", "make_cache_folder"):  # zig keeps the cache that it has
        monkeypatch.setattr(vulkan, function, lambda name: tmp_path / "cache")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BuildError, match="install the package glslc"):
        compiled_shaders(tmp_path)
    glslc = tmp_path / "glslc"
    glslc.write_text("#!/bin/sh\necho version 1\n")
    glslc.chmod(0o755)
    source = tmp_path / "src" / "ggml-vulkan" / "vulkan-shaders"
    source.mkdir(parents=True)
    (source / "vulkan-shaders-gen.cpp").write_text(GENERATOR.format(python=sys.executable))
    zig = tmp_path / "zig"
    zig.write_text(ZIG_STAND_IN.format(python=sys.executable))
    zig.chmod(0o755)
    monkeypatch.setattr(vulkan, "zig_program", lambda: zig)
    (source / "add.comp").write_text("one")
    made = compiled_shaders(tmp_path)
    assert sorted(each.name for each in made.iterdir()) == ["add.comp.cpp", "ggml-vulkan-shaders.hpp"]
    stamp = (made / "add.comp.cpp").stat().st_mtime_ns
    assert compiled_shaders(tmp_path) == made
    assert (made / "add.comp.cpp").stat().st_mtime_ns == stamp
    (source / "add.comp").write_text("other")
    assert compiled_shaders(tmp_path) != made
    (source / "bad.comp").write_text("bad")
    with pytest.raises(BuildError, match="cannot compile bad"):
        compiled_shaders(tmp_path)
    assert len(list(made.parent.iterdir())) == 2, "nothing is left of what failed"
    files = [path.name for path, _ in vulkan_library(tmp_path, tmp_path, made).objects]
    assert files == ["ggml-vulkan.cpp", "vulkan.c", "add.comp.cpp"]


CRASH = "#include <signal.h>\n__attribute__((constructor)) static void begin(void) { raise(SIGSEGV); }\n"


@pytest.mark.skipif(sys.platform != "linux", reason="processes end otherwise elsewhere")
def test_a_driver_that_crashes_or_hangs(tmp_path, monkeypatch):
    """It ends the process that tries it, and no other; nothing else opens it afterwards."""
    crashing = library(tmp_path / "libggml-vulkan.so", CRASH)
    tried = {}
    monkeypatch.setattr(bringing, "tried", tried)
    monkeypatch.setattr(loading, "installed", dict)
    monkeypatch.setattr(loading, "brought", lambda: {"vulkan": crashing})
    in_this_process = lambda name: pytest.fail("the driver's loader was opened here, which may crash too")  # noqa: E731
    monkeypatch.setattr("graphc.backends.brought.no_driver", in_this_process)
    loading.load_brought.cache_clear()
    try:
        why = "the driver crashes: libggml-vulkan.so was tried, which ended with SIGSEGV"
        assert loading.load_brought() == tried == {"vulkan": why}
        with pytest.raises(GraphcError, match=rf"no device 'vulkan0': {why}; there is .*CPU"):
            find_device("vulkan0")
        loading.load_brought.cache_clear()
        tried.clear()
        library(crashing, "#include <unistd.h>\n__attribute__((constructor)) static void begin(void) { sleep(60); }\n")
        why = "the driver says nothing: libggml-vulkan.so was tried for 2 seconds"
        with monkeypatch.context() as short:
            short.setattr(trial, "SECONDS", 2)
            assert loading.load_brought() == tried == {"vulkan": why}
        loading.load_brought.cache_clear()
        tried.clear()
        crashing.write_text("no library")
        monkeypatch.setattr("graphc.backends.brought.no_driver", lambda name: "")
        assert "libggml-vulkan.so: " in loading.load_brought()["vulkan"]
        assert tried == {"vulkan": ""}
        loading.load_brought.cache_clear()
        monkeypatch.setattr("graphc.backends.brought.no_driver", lambda name: "Vulkan's loader is not here")
        assert loading.load_brought() == {"vulkan": "Vulkan's loader is not here"}
    finally:
        loading.load_brought.cache_clear()


def test_a_library_that_needs_too_much():
    """ggml-python's need what the machine has that compiled them."""
    base = ggml_folder / "lib" / NAMES.format("ggml-base")
    with pytest.raises(BuildError, match=r"ggml-base.* needs .*, which not every system has"):
        check_libraries([base], TARGETS["musl-x86_64"])


def pure_wheel(folder: Path) -> Path:
    """A wheel without libraries, of one file."""
    pure = folder / "graphc-0.1.0-py3-none-any.whl"
    with zipfile.ZipFile(pure, "w") as archive:
        archive.writestr("graphc/__init__.py", "")
        archive.writestr("graphc-0.1.0.dist-info/METADATA", METADATA)
        archive.writestr(
            "graphc-0.1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr("graphc-0.1.0.dist-info/RECORD", "nonsense")
    return pure


def ggml_headers(folder: Path) -> Path:
    """A folder as ggml's, with its headers."""
    (folder / "include").mkdir(parents=True)
    for name in ("ggml.h", "ggml-alloc.h", "ggml-backend.h", "ggml-cpu.h", "gguf.h"):
        (folder / "include" / name).write_text(name)
    return folder


def test_what_musl_has_no_wheels_of_is_an_extra_there(tmp_path):
    pure, headers = pure_wheel(tmp_path), ggml_headers(tmp_path / "ggml")
    needed = {}
    for name in ("musl-x86_64", "linux-x86_64"):
        with zipfile.ZipFile(complete(pure, TARGETS[name], [], headers, [], tmp_path)) as archive:
            text = archive.read("graphc-0.1.0.dist-info/METADATA").decode()
        needed[name] = {
            each.removeprefix("Requires-Dist: ") for each in text.splitlines() if each.startswith("Requires-Dist: ")
        }
        assert "Provides-Extra: compile\n" in text
    others = {"ml-dtypes>=0.5", "onnx-ir<0.2,>=0.1.16", "onnx>=1.19"}
    assert others < needed["linux-x86_64"]
    assert needed["linux-x86_64"] - others == needed["musl-x86_64"] - {f"{each}; extra == 'compile'" for each in others}
    assert needed["musl-x86_64"] - needed["linux-x86_64"] == {f"{each}; extra == 'compile'" for each in others}


def test_what_is_in_a_wheel(tmp_path):
    pure = pure_wheel(tmp_path)
    own = tmp_path / "libggml-cpu-new.so"
    own.write_bytes(b"code")
    headers = ggml_headers(tmp_path / "ggml")
    parts = [
        Part("ggml", "0.15", "MIT", "MIT's", "https://ggml.ai"),
        Part("table", "", "Apache-2.0", "", "https://t5.ai", "data"),
    ]
    made = []
    for number in range(2):
        folder = tmp_path / str(number)
        folder.mkdir()
        made.append(complete(pure, TARGETS["linux-arm64"], [own], headers, parts, folder))
        os.utime(own, (number, number))
    assert made[0].name == "graphc-0.1.0-py3-none-manylinux_2_17_aarch64.whl"
    assert made[0].read_bytes() == made[1].read_bytes()
    with zipfile.ZipFile(made[0]) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    info = "graphc-0.1.0.dist-info"
    assert files["graphc/ggml/lib/libggml-cpu-new.so"] == b"code"
    assert files["graphc/ggml/include/ggml.h"] == b"ggml.h"
    assert files[f"{info}/licenses/LICENSE.ggml"] == b"MIT's"
    assert "ggml-python" not in files[f"{info}/METADATA"].decode()
    assert "Requires-Dist: numpy\n" in files[f"{info}/METADATA"].decode()
    assert "License-File: LICENSE\nLicense-File: LICENSE.ggml\n" in files[f"{info}/METADATA"].decode()
    assert files[f"{info}/WHEEL"].decode() == (
        "Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: py3-none-manylinux_2_17_aarch64\n"
    )
    listed = json.loads(files[f"{info}/sboms/graphc.cdx.json"])
    assert listed["metadata"]["component"]["purl"] == "pkg:pypi/graphc@0.1.0"
    found = [(each["name"], each.get("version"), each["licenses"][0]["expression"]) for each in listed["components"]]
    assert found == [("ggml", "0.15", "MIT"), ("table", None, "Apache-2.0")]
    rows = {row[0]: row[1:] for row in csv.reader(io.StringIO(files[f"{info}/RECORD"].decode()))}
    assert rows.pop(f"{info}/RECORD") == ["", ""]
    assert set(rows) == set(files) - {f"{info}/RECORD"}
    for name, (digest, size) in rows.items():
        assert digest == "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(files[name]).digest()).decode().rstrip("=")
        assert int(size) == len(files[name])


def test_what_wheels_hold_of_others(tmp_path):
    ggml, headers = tmp_path / "ggml", tmp_path / "headers"
    ggml.mkdir()
    numbers = zip(("MAJOR", "MINOR", "PATCH"), (1, 2, 3), strict=True)
    (ggml / "CMakeLists.txt").write_text("".join(f"set(GGML_VERSION_{part} {number})\n" for part, number in numbers))
    (ggml / "LICENSE").write_text("Permission is hereby granted, to all\n")
    for file in (*INCLUDED.values(), "vulkan/vulkan_core.h"):
        (headers / file).parent.mkdir(parents=True, exist_ok=True)
        (headers / file).write_text("// Copyright others\n")
    (headers / "vulkan" / "vulkan_core.h").write_text(
        "#define VK_HEADER_VERSION 280\n#define VK_HEADER_VERSION_COMPLETE VK_MAKE_API_VERSION(0, 1, 4, VK_HEADER_VERSION)\n"
    )
    for target in TARGETS.values():
        found = {part.name: part for part in parts_of(ggml, target, headers)}
        assert found["ggml"].version == "1.2.3"
        assert ("mingw-w64" in found) == (target.system == "windows")
        assert ("vulkan-headers" in found) == target.has_vulkan
        if target.has_vulkan:
            assert found["vulkan-headers"].version == "1.4.280"
        for part in found.values():
            assert part.kind == "data" or (re.fullmatch(r"\d+\.\d+(\.\d+)?", part.version) and len(part.text) > 20), (
                part
            )
        assert bill_of_materials("graphc", "1", list(found.values())).isascii()


CHECK = """
from graphc.ggml_library import loaded
from graphc.kernels.c.compiler import find_compiler
from graphc.targets.ggml.run.choose.library import load_own

assert loaded.own is not None
assert load_own().library is loaded.own
assert find_compiler() is None
"""


@pytest.mark.thorough
@pytest.mark.timeout(3600)
@pytest.mark.skipif(sys.platform != "linux", reason="the wheel of this machine is made")
def test_a_wheel_without_a_compiler(tmp_path):
    """It is installed where there is neither a compiler nor ggml-python, and everything runs."""
    environment = {"PATH": str(tmp_path / "venv" / "bin"), "HOME": str(tmp_path), "TERM": "dumb"}

    def run(*command: object, **more: str) -> str:
        """What a command says on its standard error."""
        words, given = list(map(str, command)), {**environment, **more}
        done = subprocess.run(words, env=given, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stderr

    name = f"linux-{'arm64' if platform.machine() == 'aarch64' else 'x86_64'}"
    build = [sys.executable, "-m", "graphc_build", "wheel", "--target", name, "--output", str(tmp_path / "dist")]
    subprocess.run(build, cwd=ROOT, check=True)
    (wheel,) = (tmp_path / "dist").iterdir()
    assert wheel.stat().st_size < 40e6
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run([str(python), "-m", "pip", "install", "--quiet", f"{wheel}[images]"], check=True)
    assert run(python, "-c", CHECK) == ""
    run(python.with_name("graphc"), "demo")
    image = ("image", "a red circle", "--seed", "1", "-o")
    pictures = [tmp_path / "wheel.png", tmp_path / "compiled.png"]
    run(python.with_name("graphc"), *image, pictures[0])
    compiled = [sys.executable, "-c", "from graphc.cli import main; main()", *image, str(pictures[1])]
    subprocess.run(compiled, cwd=ROOT, check=True)
    check_pictures(*map(picture_of, pictures))
