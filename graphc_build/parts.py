"""What a wheel holds of others: their versions and licences, as texts for people and as a list that programs read."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version as version_of
from pathlib import Path

from graphc_build.libraries import ggml_version, zig_program
from graphc_build.targets import Target
from graphc_build.vulkan import license_of, version_of_headers


@dataclass(frozen=True)
class Part:
    """Something of others, its licence as SPDX names it, the text of that where the package does not have it elsewhere, and where
    it comes from. A `kind` is a word of CycloneDX."""

    name: str
    version: str
    license: str
    text: str
    origin: str
    kind: str = "library"


TABLES = (
    Part("clip-vocabulary", "", "MIT", "", "https://github.com/openai/CLIP", "data"),
    Part("t5-vocabulary", "", "Apache-2.0", "", "https://huggingface.co/google/t5-v1_1-xxl", "data"),
    Part("qwen-vocabulary", "", "Apache-2.0", "", "https://huggingface.co/Qwen/Qwen3-4B", "data"),
)
"""What `graphc_images/tokenizers` is made of; its licences lie there."""


def parts_of(ggml: Path, target: Target, headers: Path) -> list[Part]:
    """What the wheel of a system holds: ggml, of its source, what zig links, and if it has Vulkan's backend, what of Vulkan's
    headers, which lie in a folder, is in that."""
    zig = zig_program().parent
    lib = zig / "lib"
    number = int(_defined(lib / "libcxx" / "include" / "__config", "_LIBCPP_VERSION"))
    llvm = f"{number // 10000}.{number // 100 % 100}.{number % 100}"
    exception = "Apache-2.0 WITH LLVM-exception"
    of_llvm = [
        Part(name, llvm, exception, _text(lib / name / "LICENSE.TXT"), "https://github.com/llvm/llvm-project")
        for name in ("libcxx", "libunwind")
    ]
    found = [
        Part(
            "ggml",
            ggml_version(ggml),
            "MIT",
            _text(ggml / "LICENSE"),
            "https://github.com/ggml-org/ggml",
        ),
        Part("compiler-rt-of-zig", version_of("ziglang"), "MIT", _text(zig / "LICENSE"), "https://ziglang.org"),
        *of_llvm,
    ]
    if target.system == "windows":
        macros = lib / "libc" / "include" / "any-windows-any" / "_mingw_mac.h"
        release_of_mingw = ".".join(
            _defined(macros, f"__MINGW64_VERSION_{each}") for each in ("MAJOR", "MINOR", "BUGFIX")
        )
        copying = _text(lib / "libc" / "mingw" / "COPYING")
        found.append(Part("mingw-w64", release_of_mingw, "ZPL-2.1", copying, "https://www.mingw-w64.org"))
    if target.has_vulkan:
        text = license_of(headers, found[0].text)
        release_of_vulkan = ".".join(map(str, version_of_headers(headers)))
        origin = "https://github.com/KhronosGroup/Vulkan-Headers"
        found.append(Part("vulkan-headers", release_of_vulkan, "Apache-2.0 OR MIT", text, origin))
    return [*found, *TABLES]


def bill_of_materials(name: str, version: str, parts: Sequence[Part]) -> str:
    """The list as a document of CycloneDX 1.6, without the time when it was made: the same parts give the same bytes."""
    package = f"pkg:pypi/{name}@{version}"
    return json.dumps(
        {
            "bomFormat": "CycloneDX",
            "specVersion": "1.6",
            "version": 1,
            "metadata": {
                "component": {
                    "type": "library",
                    "bom-ref": package,
                    "name": name,
                    "version": version,
                    "licenses": [{"license": {"id": "MIT"}}],
                    "purl": package,
                },
                "tools": {"components": [{"type": "application", "name": "ziglang", "version": version_of("ziglang")}]},
            },
            "components": [
                {
                    "type": part.kind,
                    "bom-ref": part.name,
                    "name": part.name,
                    **({"version": part.version} if part.version else {}),
                    "licenses": [{"expression": part.license}],
                    "externalReferences": [{"type": "website", "url": part.origin}],
                }
                for part in parts
            ],
            "dependencies": [
                {"ref": package, "dependsOn": [part.name for part in parts]},
                *({"ref": part.name} for part in parts),
            ],
        },
        indent=2,
    )


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _defined(path: Path, name: str) -> str:
    """The number that a header defines a name as."""
    found = re.search(rf"^# *define {name} (\d+)", _text(path), re.M)
    assert found is not None, f"{path} does not say what {name} is"
    return found[1]
