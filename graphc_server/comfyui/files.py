"""ComfyUI's three folders: pictures that are sent, finished ones, and those for a moment; names never leave them."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import graphc
from graphc_images import SettingError
from graphc_server.comfyui.handed import Handed
from graphc_server.errors import RequestError

KINDS = ("output", "input", "temp")
ANNOTATION = re.compile(r"^(.*?) ?\[(output|input|temp)\]$")
PICTURES = (".png", ".jpg", ".jpeg", ".webp", ".gif", ".bmp")
ODD = re.compile(r'[\x00-\x1f<>:"|?*\\]')
LONGEST = 200


class Files:
    """The folders: `output` is where pictures of all protocols are. `handed` are pictures in no folder, but by name."""

    def __init__(self, data: Path, pictures: Path, needed: Callable[[str], bool] = lambda name: False) -> None:
        """`needed` says whether a graph that waits names a handed picture."""
        self.folders = {"output": pictures.resolve(), **{kind: (data / kind).resolve() for kind in ("input", "temp")}}
        shutil.rmtree(self.folders["temp"], ignore_errors=True)
        for folder in self.folders.values():
            folder.mkdir(parents=True, exist_ok=True)
        self.handed = Handed(data / "handed", needed)

    def folder(self, kind: str, below: str = "") -> Path:
        """One of the three, or a folder in it. Raises RequestError for another, or one that lies elsewhere."""
        if kind not in KINDS:
            raise RequestError(f"type: {kind[:40]!r} is none of {', '.join(KINDS)}", 400)
        return self._inside(self.folders[kind], below, 403)

    def file(self, kind: str, below: str, name: str) -> Path:
        """A file in a folder, which need not be there. Raises RequestError for a name that leads elsewhere."""
        if not name or name != name.replace("\\", "/").rpartition("/")[2] or ODD.search(name) or len(name) > LONGEST:
            raise RequestError(f"filename: {name[:80]!r} is not a name of a file", 400)
        return self._inside(self.folder(kind, below), name, 400)

    def named(self, name: str, kind: str = "input") -> Path:
        """The file that an input of a node names: `name`, `folder/name`, perhaps with `[output]` behind. Raises RequestError."""
        found = ANNOTATION.match(name)
        if found:
            name, kind = found.groups()
        below, _, last = name.replace("\\", "/").rpartition("/")
        return self.file(kind, below, last)

    def listed(self, kind: str = "input") -> list[str]:
        """The pictures of a folder, by their paths in it."""
        root = self.folders[kind]
        found = (each for each in root.rglob("*") if each.suffix.lower() in PICTURES and each.is_file())
        return sorted(each.relative_to(root).as_posix() for each in found)

    def has(self, image: Mapping[str, Any]) -> bool:
        """True if a picture is there, as an output node said it."""
        if "id" in image:
            return self.handed.has(image["id"])
        try:
            return "filename" in image and self.file(image["type"], image["subfolder"], image["filename"]).is_file()
        except RequestError:
            return False

    def next_names(self, kind: str, prefix: str, ending: str) -> tuple[Path, str, Iterator[str]]:
        """Where pictures with a prefix go: the folder, its path in the kind's, and names that are not taken yet."""
        below, _, stem = prefix.replace("\\", "/").strip("/").rpartition("/")
        stem = ODD.sub("_", stem)[: LONGEST - 20]
        try:
            folder = self.folder(kind, below)
        except RequestError as error:
            raise SettingError(f"filename_prefix: {error}") from error
        folder.mkdir(parents=True, exist_ok=True)
        taken = re.compile(rf"{re.escape(stem)}_(\d+)_?\.")
        numbers = [int(match[1][:12]) for each in folder.iterdir() if (match := taken.match(each.name))]

        def names() -> Iterator[str]:
            number = max(numbers, default=0)
            while True:
                number += 1
                yield f"{stem}_{number:05}_{ending}"

        return folder, below, names()

    def keep(self, kind: str, below: str, name: str, content: bytes, *, replace: bool) -> str:
        """Write a file that was sent; the name that it has is returned: another than asked for if that is taken by other content,
        and it is not to be replaced. Raises RequestError."""
        path = self.file(kind, below, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        number = 0
        while not replace and path.exists():
            if path.is_file() and path.read_bytes() == content:
                return path.name
            number += 1
            path = path.with_name(f"{Path(name).stem} ({number}){Path(name).suffix}")
        if path.is_dir():
            raise RequestError(f"filename: {name!r} is a folder", 400)
        with graphc.replacing(path) as unfinished:
            unfinished.write_bytes(content)
        return path.name

    def _inside(self, folder: Path, below: str, status: int) -> Path:
        if "\x00" in below or len(below) > 4 * LONGEST:
            raise RequestError("subfolder: it is not a name of a folder", 400)
        try:
            found = (folder / below).resolve()
        except (OSError, RuntimeError, ValueError):  # the last also for halves of characters
            raise RequestError("subfolder: it is not a name of a folder", 400) from None
        if not found.is_relative_to(folder):
            raise RequestError(f"{below[:80]!r} is outside of the folder", status)
        return found
