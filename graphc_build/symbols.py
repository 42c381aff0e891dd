"""What a library needs of the system that it is for, read from the file itself (as readelf, dumpbin and otool show it)."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from graphc.errors import BuildError
from graphc_build.targets import Target

ALLOWED: dict[str, str] = {
    "linux": r"lib(c|m|dl|rt|pthread)\.so\.[0-9]|ld-linux.*|lib(ggml-base)\.so",
    "musl": r"libc\.so|lib(ggml-base)\.so",
    "windows": r"(?i)(kernel32|ntdll|advapi32|ws2_32|shell32|user32|api-ms-win-crt-[a-z0-9-]*|ucrtbase|msvcrt|ggml-base)\.dll",
    "macos": r"/usr/lib/lib(System|objc)\..*|@rpath/lib.*\.dylib",
}
"""The libraries that every such system has, and ours."""

ENTRIES = {
    "ggml-cpu": ("ggml_backend_init", "ggml_backend_cpu_init", "graphc_own", "graphc_builder_new", "graphc_routine"),
    "ggml-vulkan": ("ggml_backend_init",),
}
"""What is looked up in libraries, among others, by how their names begin."""


@dataclass(frozen=True)
class Needs:
    """The names of the libraries that one is linked with; the least version of its system (of Linux, that of glibc; Windows has
    none); what it gives others; where it says that it lies, or looks for others, which Windows' libraries do not; and, of macOS,
    whether it is signed, by anybody or nobody."""

    libraries: tuple[str, ...]
    version: tuple[int, ...]
    exports: tuple[str, ...]
    places: tuple[str, ...] = ()
    signed: bool = False


def needs_of(library: Path) -> Needs:
    """What a library needs. Raises BuildError if it is no library that is understood."""
    content = library.read_bytes()
    try:
        if content.startswith(b"\x7fELF\x02\x01"):
            return _elf(content)
        if content.startswith(b"MZ"):
            return _pe(content)
        if content.startswith(b"\xcf\xfa\xed\xfe"):
            return _macho(content)
    except (struct.error, IndexError, ValueError, RecursionError) as error:
        raise BuildError(f"{library} is damaged: {error}") from error
    raise BuildError(f"{library} is no library")


def check_libraries(libraries: Sequence[Path], target: Target) -> None:
    """Raises BuildError if one needs more than the tag of the target's wheels promises."""
    promised = re.match(r"(?:manylinux|macosx)_(\d+)_(\d+)", target.tag)
    for library in libraries:
        needs = needs_of(library)
        name = library.name.removeprefix("lib")
        entries = [each for kind, of in ENTRIES.items() if name.startswith(kind) for each in of]
        lacking = [each for each in entries if each not in needs.exports]
        if lacking:
            raise BuildError(f"{library.name} does not export {', '.join(lacking)}")
        foreign = [each for each in needs.libraries if not re.fullmatch(ALLOWED[target.system], each)]
        if foreign:
            raise BuildError(f"{library.name} needs {', '.join(foreign)}, which not every system has")
        if promised is not None and needs.version > tuple(map(int, promised.groups())):
            needed = ".".join(map(str, needs.version))
            raise BuildError(f"{library.name} needs version {needed} of its system, {target.tag} promises less")
        absolute = [each for each in needs.places if each.startswith("/")]
        if absolute:
            raise BuildError(f"{library.name} is bound to {', '.join(absolute)}")
        if (target.system, target.processor) == ("macos", "arm") and not needs.signed:
            raise BuildError(f"{library.name} is not signed: macOS loads no such library on ARM")


def _text(content: bytes, at: int) -> str:
    return content[at : content.index(b"\0", at)].decode()


def _elf(content: bytes) -> Needs:
    (start,) = struct.unpack_from("<Q", content, 40)
    size, count = struct.unpack_from("<HH", content, 58)
    sections = [struct.unpack_from("<IIQQQQIIQQ", content, start + size * number) for number in range(count)]
    needed: list[str] = []
    places: list[str] = []
    given: list[str] = []
    versions: list[tuple[int, ...]] = []
    for _, kind, _, _, offset, length, link, info, _, _ in sections:
        texts = sections[link][4] if link < count else 0
        if kind == 6:  # what the loader reads
            entries = [*struct.iter_unpack("<qQ", content[offset : offset + length])]
            needed += [_text(content, texts + value) for tag, value in entries if tag == 1]
            bound = [_text(content, texts + value) for tag, value in entries if tag in (14, 15, 29)]
            places += [place for each in bound for place in each.split(":")]
        if kind == 11:  # symbols, which are others' where they are in no section
            symbols = struct.iter_unpack("<IBBHQQ", content[offset : offset + length])
            given += [_text(content, texts + name) for name, _, _, section, _, _ in symbols if section]
        if kind == 0x6FFFFFFE:  # versions that are needed
            at = offset
            for _ in range(info):
                _, entries_of, _, first, following = struct.unpack_from("<HHIII", content, at)
                place = at + first
                for _ in range(entries_of):
                    _, _, _, name, step = struct.unpack_from("<IHHII", content, place)
                    version = re.fullmatch(r"GLIBC_([0-9.]+)", _text(content, texts + name))
                    versions += [tuple(map(int, version[1].split(".")))] if version else []
                    place += step
                at += following
    return Needs(tuple(needed), max(versions, default=()), tuple(given), tuple(places))


def _pe(content: bytes) -> Needs:
    (header,) = struct.unpack_from("<I", content, 0x3C)
    if content[header : header + 4] != b"PE\0\0":
        raise ValueError("no header")
    count, optional = (
        struct.unpack_from("<H", content, header + 6)[0],
        struct.unpack_from("<H", content, header + 20)[0],
    )
    sections = [struct.unpack_from("<8sIIII", content, header + 24 + optional + 40 * number) for number in range(count)]

    def place(address: int) -> int:
        for _, size, virtual, length, raw in sections:
            if virtual <= address < virtual + max(size, length):
                return int(raw + address - virtual)
        raise ValueError("an address outside of the file")

    given = []
    (exports,) = struct.unpack_from("<I", content, header + 24 + 112)
    if exports:
        table = place(exports)
        (many,) = struct.unpack_from("<I", content, table + 24)
        texts = place(struct.unpack_from("<I", content, table + 32)[0])
        given = [_text(content, place(each)) for each in struct.unpack_from(f"<{many}I", content, texts)]
    (imports,) = struct.unpack_from("<I", content, header + 24 + 112 + 8)
    names = []
    if imports:
        at = place(imports)
        while name := struct.unpack_from("<I", content, at + 12)[0]:
            names.append(_text(content, place(name)))
            at += 20
    return Needs(tuple(names), (), tuple(given))


TRIES = {0x22: 40, 0x33: 8}
"""The load commands that say where the names of what is given lie, and where they do."""


def _macho(content: bytes) -> Needs:
    (count,) = struct.unpack_from("<I", content, 16)
    names: list[str] = []
    places: list[str] = []
    given: tuple[str, ...] = ()
    at, version, signed = 32, 0, False
    for _ in range(count):
        kind, size, first, second = struct.unpack_from("<IIII", content, at)
        kind &= 0x7FFFFFFF  # the first bit says that a loader must know the others
        if kind in (0x0C, 0x18, 0x1F):  # a library, one that may be missing, one that is exported again
            names.append(_text(content, at + first))
        if kind in (0x0D, 0x1C):  # its own name, and where libraries are looked for
            places.append(_text(content, at + first))
        if kind in TRIES and (exports := struct.unpack_from("<I", content, at + TRIES[kind])[0]):
            given = tuple(_trie(content, exports))
        if kind == 0x32:  # the platform, and the least version
            version = second
        signed |= kind == 0x1D
        at += size
    return Needs(tuple(names), (version >> 16, version >> 8 & 0xFF), given, tuple(places), signed)


def _trie(content: bytes, start: int, at: int = 0, before: str = "") -> Iterator[str]:
    """The names in a tree of their parts. All begin with an underscore that C does not write."""
    length, place = _number(content, start + at)
    if length:
        yield before.removeprefix("_")
    place += length
    for _ in range(content[place]):
        part = _text(content, place + 1)
        below, following = _number(content, place + 2 + len(part))
        yield from _trie(content, start, below, before + part)
        place = following - 1


def _number(content: bytes, at: int) -> tuple[int, int]:
    """A number of seven bits a byte, the last of which is below 128, and where it ends."""
    number = shift = 0
    while True:
        number |= (content[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if content[at - 1] < 0x80:
            return number, at
