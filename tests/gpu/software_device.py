"""Mesa's software device as a device of generated kernels in this process: lavapipe0 (generated). Between it and Vulkan's loader
is a library that counts all calls and can have each of them fail."""

from __future__ import annotations

import ctypes
import functools
import os
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from library_file import library_file

from graphc.backends.generated import file_text, library, load_generated
from graphc.backends.load import load_backends
from graphc.kernels.c.compiled import library_bytes
from graphc.kernels.c.compiler import find_compiler

NAME = "lavapipe"
LOADER = "libvulkan.so.1"
DRIVERS = Path("/usr/share/vulkan/icd.d")

HEAD = """
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include "vulkan_calls.h"
struct call { const char * name; atomic_long count, fails_at; int code; };
static atomic_long live;
static int fails(struct call * call, int * code) {
    const long number = ++call->count;
    if (call->fails_at == 0 || number != call->fails_at) return 0;
    *code = call->code;
    return 1;
}
static void *(*get)(vulkan_object, const char *);
static void * wrapped(const char * name, void * real);
"""
TAIL = """
void * vkGetInstanceProcAddr(vulkan_object instance, const char * name) {
    if (get == NULL) *(void **) &get = dlsym(dlopen("LOADER", RTLD_NOW | RTLD_LOCAL), "vkGetInstanceProcAddr");
    return wrapped(name, get(instance, name));
}
long fake_left(void) { return live; }
const char * fake_name(int index) { return index < COUNT ? calls[index].name : NULL; }
long fake_count(int index) { return calls[index].count; }
void fake_fail(int index, long nth, int code) {
    calls[index].code = code, calls[index].fails_at = nth == 0 ? 0 : calls[index].count + nth;
}
"""


def declared() -> list[tuple[str, str, str]]:
    """What the driver declares of Vulkan's functions: names, what they give, and what they take."""
    text = re.sub(r"\s*\\\n", "\n", file_text("vulkan_calls.h"))
    return re.findall(r"^    X\((\w+), ([\w *]+?),\s*\((.*?)\)\)$", text, re.M | re.S)


def text() -> str:
    """The library."""
    calls = declared()
    names = [name for name, _, _ in calls]
    table = ", ".join(f'{{"{name}", 0, 0, 0}}' for name in names)
    parts = [HEAD, f"static struct call calls[] = {{{table}}};\n"]
    for number, (name, gives, takes) in enumerate(calls):
        types = [each.strip() for each in takes.split(",")]
        given = ", ".join(f"a{place}" for place in range(len(types)))
        parameters = ", ".join(f"{kind} a{place}" for place, kind in enumerate(types))
        parts.append(f"static {gives} (*real_{number})({takes});\nstatic {gives} own_{number}({parameters}) {{\n")
        if name == "GetDeviceProcAddr":
            parts.append(f"return wrapped(a1, real_{number}({given}));")
        elif gives == "int32_t":
            makes = name.startswith("Create") or name == "AllocateMemory"
            parts.append(f"int code = 0; if (fails(&calls[{number}], &code)) return code;\n")
            parts.append(f"code = real_{number}({given}); {'if (code == 0) live++;' if makes else ''} return code;")
        else:
            if name.startswith("Destroy") or name == "FreeMemory":
                parts.append(f"if (a{0 if name in ('DestroyDevice', 'DestroyInstance') else 1} != 0) live--;")
            parts.append(f"calls[{number}].count++; return real_{number}({given});")
        parts.append("}\n")
    parts.append("static void * wrapped(const char * name, void * real) {\nif (real == NULL) return NULL;\n")
    for number, name in enumerate(names):
        parts.append(
            f'if (strcmp(name, "vk{name}") == 0) return *(void **) &real_{number} = real, (void *) own_{number};\n'
        )
    return "".join([*parts, "return real;\n}\n", TAIL.replace("LOADER", LOADER).replace("COUNT", str(len(names)))])


class Counted:
    """The library between, as tests see it."""

    def __init__(self, path: str) -> None:
        self.functions = ctypes.CDLL(path)
        self.functions.fake_name.restype = ctypes.c_char_p
        self.functions.fake_count.restype = self.functions.fake_left.restype = ctypes.c_long
        names = iter(lambda: self.functions.fake_name(len(self.names)), None)
        self.names: list[str] = []
        for name in names:
            self.names.append(name.decode())

    def fail(self, name: str, nth: int = 1, code: int = -1) -> None:
        """Have the n-th call from now fail; none, if n is 0."""
        self.functions.fake_fail(self.names.index(name), ctypes.c_long(nth), code)

    def counts(self) -> Counter[str]:
        """How often each function was called."""
        return Counter({name: self.functions.fake_count(number) for number, name in enumerate(self.names)})

    def may_fail(self) -> set[str]:
        """The functions that say how they went."""
        return {name for name, gives, _ in declared() if gives == "int32_t"}

    def left(self) -> int:
        """Objects that were not given back; the driver's instance is one."""
        return int(self.functions.fake_left())


@functools.cache
def path() -> str:
    """The library, compiled."""
    compiler = find_compiler()
    assert compiler is not None, "the tests need a C compiler"
    source = text().replace('#include "vulkan_calls.h"', file_text("vulkan_calls.h").replace("#pragma once", ""))
    return library_file(library_bytes(source, compiler, flags=("-std=gnu11", "-O1", "-g", "-w")))


@contextmanager
def software_alone() -> Iterator[None]:
    """Vulkan's loader finds the software device, and no other."""
    before = dict(os.environ)
    os.environ.setdefault("GALLIVM_PERF", "nopt")
    os.environ["GGML_VK_VISIBLE_DEVICES"] = "0"
    if files := sorted(DRIVERS.glob("lvp_icd*.json")):
        os.environ["VK_DRIVER_FILES"] = os.pathsep.join(map(str, files))
    try:
        yield
    finally:
        for name in ("GGML_VK_VISIBLE_DEVICES", "VK_DRIVER_FILES"):
            os.environ.pop(name, None)
            if name in before:
                os.environ[name] = before[name]


@functools.cache
def registered() -> str:
    """Make the device known; why there is none, or nothing."""
    load_backends()
    load_generated()
    with software_alone():
        try:
            ctypes.CDLL(LOADER)
            return library().register("vulkan", NAME, path())
        except OSError as error:
            return str(error)


@functools.cache
def counted() -> Counted:
    """What counts the calls of the device. Skips the test where there is none."""
    if why := registered():
        pytest.skip(f"no software device of Vulkan's: {why}")
    return Counted(path())
