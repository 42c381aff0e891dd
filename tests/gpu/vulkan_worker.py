"""Runs kernels by `vulkan.c`, in a process of its own: another dynamic loader may start it, so that it has newer drivers.

Takes the library's path; then, for each pickled request on its input, writes a pickled answer to its output: what was asked for,
or the text of an error.
"""

from __future__ import annotations

import ctypes
import os
import pickle
import sys
from typing import Any

HANDLE, SIZE = ctypes.c_void_p, ctypes.c_size_t


class Facts(ctypes.Structure):
    """gpu_facts."""

    _fields_ = (
        ("description", ctypes.c_char * 256),
        ("address", ctypes.c_char * 32),
        ("architecture", ctypes.c_char * 32),
        ("integrated", ctypes.c_bool),
        ("memory", SIZE),
        ("largest", SIZE),
        ("shared", SIZE),
        ("cache", SIZE),
        ("multiprocessors", ctypes.c_int),
        ("registers", ctypes.c_int),
        ("threads", ctypes.c_int),
        ("lanes", ctypes.c_int),
        ("arguments", SIZE),
        ("abilities", ctypes.c_char * 128),
        ("matrices", ctypes.c_char * 128),
    )


class Place(ctypes.Structure):
    """gpu_place."""

    _fields_ = (("memory", HANDLE), ("offset", SIZE))


class Value(ctypes.Union):
    """What an argument is."""

    _fields_ = (("place", Place), ("bytes", ctypes.c_uint8 * 16))


class Argument(ctypes.Structure):
    """gpu_argument."""

    _fields_ = (("is_place", ctypes.c_bool), ("size", ctypes.c_uint8), ("value", Value))


class Work(ctypes.Structure):
    """gpu_work."""

    _fields_ = (
        ("kernel", HANDLE),
        ("grid", ctypes.c_uint32 * 3),
        ("threads", ctypes.c_uint32 * 3),
        ("shared", ctypes.c_uint32),
        ("count", ctypes.c_int),
        ("arguments", ctypes.POINTER(Argument)),
    )


CALLS = (
    "open", "close", "describe", "device_open", "device_close", "free_memory", "allocate", "release", "queue_new", "queue_free",
    "wait", "upload", "download", "copy", "fill", "event_new", "event_free", "event_record", "event_wait", "event_synchronize",
    "event_seconds", "module_load", "module_free", "kernel_find", "launch", "record_begin", "record_end", "replay",
    "recording_free",
)  # fmt: skip
"""The functions of gpu_calls, in its order."""


class Driver:
    """A table of a driver's functions, by name; those that fail raise RuntimeError with what they say."""

    def __init__(self, path: str, table: str = "graphc_gpu_vulkan") -> None:
        library = ctypes.CDLL(path)
        pointers = (ctypes.c_void_p * len(CALLS)).in_dll(library, table)
        self.said = (ctypes.c_char * 1024).in_dll(library, "said")
        self.functions = {
            name: ctypes.CFUNCTYPE(ctypes.c_int)(at or 0) for name, at in zip(CALLS, pointers, strict=True)
        }

    def __call__(self, name: str, *arguments: Any) -> None:
        """Call a function; numbers are sizes."""
        given = [SIZE(each) if isinstance(each, int) else each for each in arguments]
        status = self.functions[name](*given)
        if status and not name.endswith(("_free", "release", "close")):
            raise RuntimeError(f"{name}: {self.said.value.decode()} ({status})")

    def made(self, name: str, *arguments: Any) -> ctypes.c_void_p:
        """What a function makes, by its last argument."""
        found = HANDLE()
        self(name, *arguments, ctypes.byref(found))
        return found


class Device:
    """A device, and what is run on it."""

    def __init__(self, path: str) -> None:
        self.driver = driver = Driver(path)
        self.handle, count = HANDLE(), ctypes.c_int()
        opened = HANDLE()
        driver("open", None, ctypes.byref(opened), ctypes.byref(count))
        self.facts = Facts()
        driver("describe", opened, ctypes.c_int(0), ctypes.byref(self.facts))
        self.opened, self.device = opened, driver.made("device_open", opened, ctypes.c_int(0))
        self.queue = driver.made("queue_new", self.device)

    def describe(self) -> dict[str, Any]:
        """What is known of the device."""
        facts = {name: getattr(self.facts, name) for name, _ in Facts._fields_}
        return {name: each.decode() if isinstance(each, bytes) else each for name, each in facts.items()}

    def allocated(self, size: int) -> ctypes.c_void_p:
        """Memory."""
        memory = HANDLE()
        self.driver("allocate", self.device, size, ctypes.byref(memory), ctypes.byref(HANDLE()))
        return memory

    def run(self, steps: list[dict[str, Any]], arrays: list[bytes], recorded: int = 0) -> tuple[list[bytes], float]:
        """Arrays after launches, of which each has `code`, `name`, `grid`, `shared` and `arguments`: numbers of arrays, or bytes;
        and the seconds that they took. `recorded` launches are replayed so often, if not 0."""
        d, driver = self.device, self.driver
        memories = [self.allocated(len(each)) for each in arrays]
        kept = [ctypes.create_string_buffer(each, max(len(each), 1)) for each in arrays]
        for memory, array, whole in zip(memories, kept, arrays, strict=True):
            driver("upload", d, self.queue, Place(memory, 0), array, len(whole))
        modules: dict[bytes, ctypes.c_void_p] = {}
        events = [driver.made("event_new", d, ctypes.c_bool(True)) for _ in range(2)]
        try:
            works = [self.work(step, memories, modules) for step in steps]
            driver("event_record", d, self.queue, events[0])
            if recorded:
                driver("record_begin", d, self.queue)
            for work, _ in works:
                driver("launch", d, self.queue, ctypes.byref(work))
            if recorded:
                recording = driver.made("record_end", d, self.queue)
                for _ in range(recorded):
                    driver("replay", d, self.queue, recording)
            driver("event_record", d, self.queue, events[1])
            for memory, array, whole in zip(memories, kept, arrays, strict=True):
                driver("download", d, self.queue, array, Place(memory, 0), len(whole))
            driver("wait", d, self.queue)
            if recorded:
                driver("recording_free", d, recording)
            seconds = ctypes.c_double()
            driver("event_seconds", d, *events, ctypes.byref(seconds))
        finally:
            for event in events:
                driver("event_free", d, event)
            for module in modules.values():
                driver("module_free", d, module)
            for memory in memories:
                driver("release", d, memory)
        return [array.raw[: len(whole)] for array, whole in zip(kept, arrays, strict=True)], seconds.value

    def work(self, step: dict[str, Any], memories: list[Any], modules: dict[bytes, Any]) -> tuple[Work, Any]:
        """A launch, and what it points to."""
        code = step["code"]
        if code not in modules:
            modules[code] = self.driver.made("module_load", self.device, code, len(code))
        name = step["name"].encode()
        kernel = self.driver.made("kernel_find", self.device, modules[code], name, ctypes.c_uint32(step["shared"]))
        arguments = (Argument * max(len(step["arguments"]), 1))()
        for argument, each in zip(arguments, step["arguments"], strict=False):
            if isinstance(each, bytes):
                argument.size = len(each)
                argument.value.bytes[: len(each)] = each
            else:
                argument.is_place, argument.value.place = True, Place(memories[each], 0)
        grid = (ctypes.c_uint32 * 3)(*step["grid"])
        return Work(
            kernel, grid, (ctypes.c_uint32 * 3)(1, 1, 1), step["shared"], len(step["arguments"]), arguments
        ), arguments

    def close(self) -> None:
        """Give everything back."""
        self.driver("queue_free", self.device, self.queue)
        self.driver("device_close", self.device)
        self.driver("close", self.opened)


def main() -> None:
    """Answer until there is nothing more to read."""
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # layers write there
    device: Device | None = None
    while True:
        try:
            name, arguments = pickle.load(sys.stdin.buffer)
        except EOFError:
            break
        try:
            device = device or Device(sys.argv[1])
            answer: Any = getattr(device, name)(*arguments)
            pickle.dump((True, answer), output)
        except RuntimeError as error:
            pickle.dump((False, str(error)), output)
        output.flush()
    if device is not None:
        device.close()


if __name__ == "__main__":
    main()
