"""The systems that wheels are made for, and the kinds of processors that each has code for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from graphc.errors import find_named

X86_64: Mapping[str, tuple[str, ...]] = {
    "sse42": ("SSE42",),
    "haswell": ("SSE42", "AVX", "F16C", "FMA", "AVX2", "BMI2"),
    "alderlake": ("SSE42", "AVX", "F16C", "FMA", "AVX2", "BMI2", "AVX_VNNI"),
    "skylakex": ("SSE42", "AVX", "F16C", "FMA", "AVX2", "BMI2", "AVX512"),
    "icelake": ("SSE42", "AVX", "F16C", "FMA", "AVX2", "BMI2", "AVX512", "AVX512_VBMI", "AVX512_VNNI"),
    "zen4": ("SSE42", "AVX", "F16C", "FMA", "AVX2", "BMI2", "AVX512", "AVX512_VBMI", "AVX512_VNNI", "AVX512_BF16"),
}
"""Kinds of processors by ggml's names of them, with what it calls their features. One without SSE4.2 is older than 2009."""

ARMV8: Mapping[str, tuple[str, ...]] = {
    "armv8.0": (),
    "armv8.2": ("DOTPROD", "FP16_VECTOR_ARITHMETIC"),
    "armv8.6": ("DOTPROD", "FP16_VECTOR_ARITHMETIC", "MATMUL_INT8"),
}

APPLE: Mapping[str, tuple[str, ...]] = {
    "apple_m1": ("DOTPROD",),
    "apple_m2": ("DOTPROD", "MATMUL_INT8"),
}

WINDOWS_ARM: Mapping[str, tuple[str, ...]] = {"armv8.2": ("DOTPROD", "FP16_VECTOR_ARITHMETIC")}
"""ggml cannot ask Windows what the processor has; all on which Windows 11 runs have this."""

ZIG: Mapping[str, str] = {
    "SSE42": "sse3+ssse3+sse4_1+sse4_2+popcnt",
    "AVX": "avx",
    "F16C": "f16c",
    "FMA": "fma",
    "AVX2": "avx2",
    "BMI2": "bmi2",
    "AVX_VNNI": "avxvnni",
    "AVX512": "avx512f+avx512cd+avx512vl+avx512dq+avx512bw",
    "AVX512_VBMI": "avx512vbmi",
    "AVX512_VNNI": "avx512vnni",
    "AVX512_BF16": "avx512bf16",
    "DOTPROD": "v8_2a+dotprod",
    "FP16_VECTOR_ARITHMETIC": "fullfp16",
    "MATMUL_INT8": "i8mm",
}
"""zig's names of features: those that ggml looks for before it takes the code, and no others that such processors have."""


NEWER: Mapping[str, tuple[str, Sequence[str]]] = {
    "linux": ("2_17", [f"2_{minor}" for minor in range(18, 37)]),
    "macos": ("11_0", ["15_0"]),
}
"""The versions of systems that their wheels are made for, and of wheels that newer ones take; of macOS pip knows all between."""


@dataclass(frozen=True)
class Target:
    """A system: zig's name, the tag of its wheels, how it calls libraries, the least processor (zig's name), and the kinds of
    processors that there is code for."""

    name: str
    triple: str
    tag: str
    library: str
    least: str
    variants: Mapping[str, tuple[str, ...]]

    @property
    def system(self) -> str:
        """The kind of system, as in its name."""
        return self.name.split("-")[0]

    @property
    def processor(self) -> str:
        """The kind of processor, as ggml's folders are called."""
        return "x86" if self.triple.startswith("x86_64") else "arm"

    @property
    def has_vulkan(self) -> bool:
        """True if drivers of Vulkan come with such systems or their devices; for macOS they do not."""
        return self.system != "macos"

    @property
    def accepted(self) -> list[str]:
        """The tags of wheels that such a system takes if it is one of today, as pip's option `--platform` has them."""
        least, newer = NEWER.get(self.system, (self.tag, ()))
        return [self.tag, *(self.tag.replace(least, each) for each in newer)]

    def cpu(self, variant: str) -> str:
        """zig's name of a kind of processor."""
        return "+".join([self.least, *(ZIG[feature] for feature in self.variants[variant])])


TARGETS: Mapping[str, Target] = {
    each.name: each
    for each in (
        Target("linux-x86_64", "x86_64-linux-gnu.2.17", "manylinux_2_17_x86_64", "lib{}.so", "x86_64", X86_64),
        Target("linux-arm64", "aarch64-linux-gnu.2.17", "manylinux_2_17_aarch64", "lib{}.so", "generic", ARMV8),
        Target("musl-x86_64", "x86_64-linux-musl", "musllinux_1_2_x86_64", "lib{}.so", "x86_64", X86_64),
        Target("musl-arm64", "aarch64-linux-musl", "musllinux_1_2_aarch64", "lib{}.so", "generic", ARMV8),
        Target("windows-x86_64", "x86_64-windows-gnu", "win_amd64", "{}.dll", "x86_64", X86_64),
        Target("windows-arm64", "aarch64-windows-gnu", "win_arm64", "{}.dll", "generic", WINDOWS_ARM),
        Target("macos-x86_64", "x86_64-macos.11.0", "macosx_11_0_x86_64", "lib{}.dylib", "x86_64", X86_64),
        Target("macos-arm64", "aarch64-macos.11.0", "macosx_11_0_arm64", "lib{}.dylib", "apple_m1", APPLE),
    )
}
"""By name."""


def target_of(wheel: Path) -> Target:
    """The target of a wheel, by its name."""
    return next(each for each in TARGETS.values() if wheel.name.endswith(f"-{each.tag}.whl"))


def find_target(name: str) -> Target:
    """The target of that name. Raises BuildError if there is none."""
    return find_named(TARGETS, "target", name)
