"""What ggml's Vulkan backend is compiled of besides its source: its shaders as SPIR-V, and the headers of Vulkan and SPIR-V.

The shaders are compiled once for all systems, by ggml's generator and glslc, and kept in the cache. Those that need newer
extensions of GLSL (cooperative matrices, dot products of int8, bfloat16) are left out: not every glslc has these.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from graphc.cache import cache_folder, is_own, make_cache_folder
from graphc.errors import BuildError
from graphc.trace import SILENT, Progress
from graphc_build.libraries import BACKEND, NATIVE, Library, run, zig_program

HEADER = "ggml-vulkan-shaders.hpp"

LEAST = 272
"""The first version 1.3 of the headers that has what ggml uses."""

INCLUDED = {"vulkan": "vulkan/vulkan.hpp", "vk_video": "vk_video/vulkan_video_codec_h264std.h",
            "spirv": "spirv/unified1/spirv.hpp"}  # fmt: skip
"""Folders of headers, with one that is in each."""

ADVICE = "install a newer Vulkan SDK and name it in VULKAN_SDK, as CONTRIBUTING.md says"


def vulkan_library(ggml: Path, included: Path, compiled: Path) -> Library:
    """The library, made of ggml's source, and of the folders of headers and shaders."""
    places = (
        f"-I{included}",
        f"-I{compiled}",
        f"-ffile-prefix-map={included}=vulkan",
        f"-ffile-prefix-map={compiled}=shaders",
    )
    before = ("-include", str(NATIVE / "vulkan_shaders.hpp"))
    files = [(ggml / "src" / "ggml-vulkan" / "ggml-vulkan.cpp", before), (NATIVE / "vulkan.c", ())]
    files += [(each, ()) for each in sorted(compiled.glob("*.cpp"))]
    return Library("ggml-vulkan", [(file, (*BACKEND, *places, *more)) for file, more in files], ("ggml-base",))


def copy_headers(folder: Path) -> Path:
    """Have a folder hold the headers and no others of this system. Raises BuildError if they are not here or too old."""
    sdk = os.environ.get("VULKAN_SDK", "")
    places = [*([Path(sdk) / "include"] if sdk else []), Path("/usr/include"), Path("/usr/local/include")]
    for name, file in INCLUDED.items():
        place = next((each for each in places if (each / file).is_file()), None)
        if place is None:
            raise BuildError(f"ggml's Vulkan backend needs {file}: {ADVICE}")
        shutil.copytree(place / name, folder / name, dirs_exist_ok=True)
    version = version_of_headers(folder)
    if version < (1, 3, LEAST):
        shown = ".".join(map(str, version))
        raise BuildError(f"Vulkan's headers are of version {shown}, older than 1.3.{LEAST}: {ADVICE}")
    return folder


def version_of_headers(folder: Path) -> tuple[int, int, int]:
    """The version of Vulkan's headers in a folder, with 0 for what they do not say."""
    text = (folder / "vulkan" / "vulkan_core.h").read_text(encoding="utf-8")
    minor = re.search(r"VK_MAKE_API_VERSION\(0, 1, (\d+), VK_HEADER_VERSION\)", text)
    patch = re.search(r"#define VK_HEADER_VERSION (\d+)", text)
    return 1, int(minor[1]) if minor else 0, int(patch[1]) if patch else 0


def compiled_shaders(ggml: Path, progress: Progress = SILENT) -> Path:
    """The folder of the compiled shaders, as C++ files and their header. Raises BuildError."""
    glslc = shutil.which("glslc")
    if glslc is None:
        raise BuildError("ggml's shaders are compiled by glslc: install the package glslc (or shaderc)")
    source = ggml / "src" / "ggml-vulkan" / "vulkan-shaders"
    folder = cache_folder("shaders") / _key(source, glslc)
    if not folder.is_dir():
        with tempfile.TemporaryDirectory(prefix=".shaders-", dir=make_cache_folder("shaders")) as beside:
            made = Path(beside) / "made"
            made.mkdir()
            _compile(source, glslc, Path(beside), made, progress)
            made.chmod(0o700)
            try:
                os.replace(made, folder)
            except OSError as error:  # another process was faster, which is as good
                if not folder.is_dir():
                    raise BuildError(f"{folder} cannot be written: {error}") from error
    if not is_own(folder):
        raise BuildError(f"{folder} is not yours alone: remove it, and it is made again")
    return folder


def _compile(source: Path, glslc: str, beside: Path, made: Path, progress: Progress) -> None:
    generator = beside / "generator"
    build = ("c++", "-std=c++17", "-O1", "-w", source / "vulkan-shaders-gen.cpp", "-o", generator)
    run([str(each) for each in (zig_program(), *build)])
    common = [str(generator), "--output-dir", str(beside / "spirv"), "--target-hpp", str(made / HEADER)]
    run(common)
    files = sorted(source.glob("*.comp"))
    with progress.stage("compile shaders", len(files)) as step:
        for each in files:  # one after the other: the generator starts a process for each processor
            run([*common, "--glslc", glslc, "--source", str(each), "--target-cpp", str(made / f"{each.name}.cpp")])
            (made / f"{each.name}.cpp.d").unlink(missing_ok=True)
            step(1)


def _key(source: Path, glslc: str) -> str:
    """What the shaders are made of, as the name of a folder."""
    said = subprocess.run([glslc, "--version"], capture_output=True, check=False).stdout
    digest = hashlib.sha256(said)
    for each in sorted(path for path in source.iterdir() if path.is_file()):
        digest.update(f"{each.name}\0{each.stat().st_size}\0".encode() + each.read_bytes())
    return digest.hexdigest()[:32]


def license_of(folder: Path, mit: str) -> str:
    """The licence of the headers, which are under MIT's: their notices, and its terms."""
    notices = []
    for file in INCLUDED.values():
        lines = (folder / file).read_text(encoding="utf-8").splitlines()
        notices += [line.strip("/* ") for line in lines[:12] if "Copyright" in line]
    return "\n".join([*dict.fromkeys(notices), "", mit[mit.index("Permission is hereby granted") :]])
