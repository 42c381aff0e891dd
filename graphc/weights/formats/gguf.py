"""The GGUF container of an engine: metadata, then tensors that can be used where they lie in a mapped file.

Written one tensor at a time. Files that are read come from strangers, so every size is compared with what is left of the file
before it is used, and nothing is copied.
Source: the GGUF specification, version 3, and the stricter checks of ggml's own reader.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from graphc.errors import EngineError
from graphc.files import map_file, replacing
from graphc.ggml_types import TYPES, nbytes
from graphc.records import dataclass
from graphc.trace import SILENT, Progress

VERSION = 3
"""The version of GGUF."""

GZIP = b"\x1f\x8b"
"""How a file begins that gzip compressed."""

ALIGNMENT = 64
"""Bytes to which every tensor's data is aligned: enough for any instruction set of the CPU backend."""

_TYPE_NAMES = {type.code: name for name, type in TYPES.items()}

_SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<B", 10: "<Q", 11: "<q", 12: "<d"}
_NUMBER, _STRING, _ARRAY = 4, 8, 9
_LONGEST = 2**63
_SHORT = 8
_PART = 1 << 24

LARGEST_UNPACKED = 1 << 30
"""Bytes that a compressed file may become; it is all in memory then."""


@dataclass(frozen=True)
class Entry:
    """A tensor of the file: ggml's type, and sizes in ggml's order (one to four)."""

    name: str
    type: str
    ne: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of the data, without padding."""
        return nbytes(self.type, self.ne)


def write_container(
    path: str | os.PathLike[str],
    metadata: Mapping[str, str | int],
    entries: Sequence[Entry],
    data: Callable[[int], np.ndarray],
    progress: Progress = SILENT,
) -> None:
    """Write a file whole or not at all. `data(i)` is asked for the array of entry `i` when its turn comes.

    Raises OSError where the file cannot be written.
    """
    first = ("general.architecture", "general.alignment")
    pairs = {first[0]: metadata[first[0]], first[1]: ALIGNMENT, **metadata}
    with replacing(path) as unfinished, open(unfinished, "wb") as file:
        file.write(struct.pack("<4sIQQ", b"GGUF", VERSION, len(entries), len(pairs)))
        file.writelines(_text(key) + _value(value) for key, value in pairs.items())
        offset = 0
        for entry in entries:
            numbers = len(entry.ne), *entry.ne, TYPES[entry.type].code, offset
            file.write(_text(entry.name) + struct.pack(f"<I{len(entry.ne)}QIQ", *numbers))
            offset += entry.nbytes + -entry.nbytes % ALIGNMENT
        with progress.stage("write weights", sum(entry.nbytes for entry in entries)) as step:
            _write_data(file, entries, data, step)


def _text(text: str) -> bytes:
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw


def _value(value: str | int) -> bytes:
    return struct.pack("<I", _STRING) + _text(value) if isinstance(value, str) else struct.pack("<II", _NUMBER, value)


def _write_data(
    file: Any, entries: Sequence[Entry], data: Callable[[int], np.ndarray], step: Callable[[int], None]
) -> None:
    file.write(bytes(-file.tell() % ALIGNMENT))
    for index, entry in enumerate(entries):
        raw = _little_endian_bytes(data(index))
        assert raw.nbytes == entry.nbytes, f"{entry.name} has {raw.nbytes} bytes, not {entry.nbytes}"
        for start in range(0, raw.nbytes, _PART):
            step(file.write(raw[start : start + _PART]))
        file.write(bytes(-entry.nbytes % ALIGNMENT))


def _little_endian_bytes(array: np.ndarray) -> np.ndarray:
    array = np.ascontiguousarray(array)
    if array.dtype.byteorder == ">" or (array.dtype.byteorder == "=" and struct.pack("=H", 1) != struct.pack("<H", 1)):
        array = array.byteswap()
    return array.reshape(-1).view(np.uint8)


def read_container(
    path: str | os.PathLike[str], architecture: str
) -> tuple[dict[str, Any], list[Entry], list[np.ndarray]]:
    """Metadata, the tensors, and the bytes of each as a view of the mapped file.

    Raises EngineError if the file is missing, is not a GGUF file, is one of another architecture, or is damaged.
    """
    reader = _Reader(_mapped(Path(path)))
    metadata, tensors = reader.head()
    found = metadata.get("general.architecture")
    if found != architecture:
        raise EngineError(f"it is a GGUF file of the architecture {found!r}, not {architecture!r}")
    pairs = [_entry(*reader.tensor()) for _ in range(reader.count(tensors, 24))]
    entries, offsets = [entry for entry, _ in pairs], [offset for _, offset in pairs]
    alignment = _alignment(metadata)
    return metadata, entries, _views(reader.mapped, reader.position, alignment, entries, offsets)


def read_tensors(path: str | os.PathLike[str]) -> tuple[dict[str, Any], list[Entry], list[np.ndarray]]:
    """The metadata of any GGUF file, its tensors by where they lie, and the bytes of each as a view of the mapped file.

    Raises EngineError if the file is missing, is not a GGUF file, is damaged, or has a tensor of a type that is not known.
    """
    reader = _Reader(_mapped(Path(path)))
    metadata, count = reader.head()
    pairs = sorted((_entry(*reader.tensor()) for _ in range(reader.count(count, 24))), key=lambda pair: pair[1])
    base, end = reader.position + -reader.position % _alignment(metadata), 0
    entries: list[Entry] = []
    views: list[np.ndarray] = []
    for entry, offset in pairs:
        if offset < end or base + offset + entry.nbytes > reader.mapped.size:
            reason = "lies in another" if offset < end else "goes past the end of the file"
            raise EngineError(f"it is damaged or cut off: tensor {entry.name!r} {reason}")
        end = offset + entry.nbytes
        entries.append(entry)
        views.append(np.asarray(reader.mapped[base + offset : base + end]))
    if len({entry.name for entry in entries}) != len(entries):
        raise EngineError("it is damaged: a tensor is there twice")
    return metadata, entries, views


def _alignment(metadata: Mapping[str, Any]) -> int:
    alignment = metadata.get("general.alignment", 32)
    if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
        raise EngineError("it is damaged: an alignment that is not a power of two")
    return alignment


def _entry(name: str, ne: tuple[int, ...], code: int, offset: int) -> tuple[Entry, int]:
    if code not in _TYPE_NAMES:
        raise EngineError(f"tensor {name!r} is of ggml's type {code}, which is not supported")
    entry = Entry(name, _TYPE_NAMES[code], ne)
    if ne[0] % TYPES[entry.type].elements:
        raise EngineError(f"it is damaged: tensor {name!r} of {entry.type} has rows of {ne[0]}")
    if entry.nbytes >= _LONGEST:
        raise EngineError(f"it is damaged: tensor {name!r} is larger than any file")
    return entry, offset


def _views(
    mapped: np.ndarray, end: int, alignment: int, entries: Sequence[Entry], offsets: Sequence[int]
) -> list[np.ndarray]:
    """The bytes of each tensor; they must follow one another, padded, and fill the file."""
    base = end + -end % alignment
    expected = 0
    views = []
    for entry, offset in zip(entries, offsets, strict=True):
        if offset != expected or base + offset + entry.nbytes > mapped.size:
            raise EngineError(f"it is damaged or cut off: the data of tensor {entry.name!r} is not where it should be")
        views.append(mapped[base + offset : base + offset + entry.nbytes])
        expected += entry.nbytes + -entry.nbytes % alignment
    if base + expected != mapped.size and entries:
        raise EngineError(f"it is damaged or cut off: {mapped.size} bytes long, not {base + expected}")
    return views


def _mapped(path: Path) -> np.ndarray:
    """The bytes of a file; of one that gzip compressed, those that it had before."""
    try:
        mapped = map_file(path)
    except OSError as error:
        raise EngineError(str(error.strerror or error).lower()) from error
    if mapped.size < 24:
        raise EngineError("it is not a GGUF file")
    return _unpacked(mapped) if mapped[:2].tobytes() == GZIP else mapped


def _unpacked(packed: np.ndarray) -> np.ndarray:
    """What gzip compressed, without a place for more than `LARGEST_UNPACKED`."""
    unpacking = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    try:
        raw = unpacking.decompress(packed.tobytes(), LARGEST_UNPACKED)
    except zlib.error as error:
        raise EngineError(f"it is damaged: what gzip compressed cannot be read ({error})") from error
    if unpacking.unconsumed_tail:
        raise EngineError(f"it would be larger than {LARGEST_UNPACKED} bytes; unpack it with gunzip")
    if not unpacking.eof or unpacking.unused_data:
        raise EngineError("it is damaged or cut off: what gzip compressed does not end where the file does")
    if len(raw) < 24:
        raise EngineError("it is not a GGUF file")
    return np.frombuffer(raw, np.uint8)


class _Reader:
    """A position in the mapped file that moves forward and never past the end."""

    def __init__(self, mapped: np.ndarray) -> None:
        self.mapped = mapped
        self.position = 0

    def take(self, size: int) -> bytes:
        """The next bytes. Raises EngineError if there are not so many left."""
        if size > self.mapped.size - self.position:
            raise EngineError("it is damaged or cut off: the header goes past the end of the file")
        self.position += size
        return self.mapped[self.position - size : self.position].tobytes()

    def number(self, format: str) -> Any:
        """The next number, of a `struct` format."""
        return struct.unpack(format, self.take(struct.calcsize(format)))[0]

    def count(self, count: int, size: int) -> int:
        """A number of items that take at least `size` bytes each, which the rest of the file must be able to hold."""
        if count * size > self.mapped.size - self.position:
            raise EngineError("it is damaged or cut off: more items than the file can hold")
        return count

    def text(self) -> str:
        """The next string."""
        raw = self.take(self.number("<Q"))
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise EngineError("it is damaged: a string that is not UTF-8") from error

    def metadata(self, pairs: int) -> dict[str, Any]:
        """Keys and values; long arrays are passed over."""
        found: dict[str, Any] = {}
        for _ in range(self.count(pairs, 13)):
            key, kind = self.text(), self.number("<I")
            if key in found:
                raise EngineError(f"it is damaged: key {key!r} occurs twice")
            found[key] = self.value(kind)
        return found

    def value(self, kind: int) -> Any:
        """A value of a kind; None for an array of strings, or of more than a few numbers."""
        if kind == _STRING:
            return self.text()
        if kind in _SCALARS:
            return self.number(_SCALARS[kind])
        if kind != _ARRAY:
            raise EngineError(f"it is damaged: a value of the unknown kind {kind}")
        inner, length = self.number("<I"), self.number("<Q")
        if inner == _STRING:
            for _ in range(self.count(length, 8)):
                self.take(self.number("<Q"))
        elif inner in _SCALARS:
            raw = self.take(length * struct.calcsize(_SCALARS[inner]))
            return [each for (each,) in struct.iter_unpack(_SCALARS[inner], raw)] if length <= _SHORT else None
        else:
            raise EngineError(f"it is damaged: an array of the unknown kind {inner}")
        return None

    def head(self) -> tuple[dict[str, Any], int]:
        """The metadata, and the number of tensors that follow."""
        if self.take(4) != b"GGUF":
            raise EngineError("it is not a GGUF file")
        version = self.number("<I")
        if version != VERSION:
            raise EngineError(f"it is a GGUF file of version {version}, not {VERSION}")
        tensors, pairs = self.number("<Q"), self.number("<Q")
        return self.metadata(pairs), tensors

    def tensor(self) -> tuple[str, tuple[int, ...], int, int]:
        """A tensor's name, sizes, the number of its type, and the offset of its data."""
        name, rank = self.text(), self.number("<I")
        if not 1 <= rank <= 4:
            raise EngineError(f"it is damaged: tensor {name!r} has {rank} axes")
        ne = tuple(self.number("<Q") for _ in range(rank))
        return name, ne, self.number("<I"), self.number("<Q")
