"""What files are, by SHA-256, as pictures name them: computed while the picture is painted, and kept for the next time.

Source: AUTOMATIC1111's modules/hashes.py and processing.py, its Lora extension's network.py, and kohya's addnet hash.
"""

from __future__ import annotations

import hashlib
import json
import logging
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path

import graphc
from graphc_images.folders import called
from graphc_images.from_files import Stamp, stamp
from graphc_images.headers import begin_of_tensors, metadata_of

LOG = logging.getLogger("graphc.images")
FOLDER = "hashes"
SHORT, SHORT_OF_LORA = 10, 12
PIECE = 1 << 22


class Hashes:
    """Hashes of files. Each is computed by a thread of its own, once; asking for it waits for that."""

    def __init__(self) -> None:
        self._found: dict[tuple[Path, Stamp, bool], Future[str]] = {}

    def begin(self, path: Path, *, content: bool = False) -> Future[str]:
        """The hash of a file, later; empty for a folder, and for what cannot be read.

        `content` leaves out the header of a safetensors file: another title or tag in it makes no other hash.
        """
        whole = path.absolute()
        key = whole, stamp(whole), content
        if key not in self._found:
            self._found[key] = Future()
            threading.Thread(target=_compute, args=(whole, content, self._found[key]), daemon=True).start()
        return self._found[key]

    def of_model(self, path: Path) -> str:
        """As "Model hash" and "VAE hash" have it."""
        return self.begin(path).result()[:SHORT]

    def of_lora(self, path: Path) -> str:
        """As "Lora hashes" has it: the header says it, or it is that of what is behind the header."""
        said = metadata_of(path).get("sshs_model_hash", "")
        return (said or self.begin(path, content=path.suffix == ".safetensors").result())[:SHORT_OF_LORA]

    def of_embedding(self, path: Path) -> str:
        """As "TI hashes" has it."""
        return self.begin(path).result()[:SHORT_OF_LORA]


def labels(
    hashes: Hashes, model: Path, vae: Path | None, loras: Mapping[str, Path], embeddings: Mapping[str, Path]
) -> dict[str, object]:
    """A1111's labels for the files that a picture was made with, LoRAs and embeddings by the names that the prompt gives them."""
    pairs = {
        "Lora hashes": {name: hashes.of_lora(path) for name, path in loras.items()},
        "TI hashes": {name: hashes.of_embedding(path) for name, path in embeddings.items()},
    }
    return {
        "Model hash": hashes.of_model(model) or None,
        "VAE hash": hashes.of_model(vae) or None if vae is not None else None,
        "VAE": vae.name if vae is not None else None,
        **{
            label: ", ".join(f"{_plain(name)}: {each}" for name, each in found.items()) or None
            for label, found in pairs.items()
        },
    }


def _plain(name: str) -> str:
    """Without what the text is cut at."""
    return called(name).replace(":", "").replace(",", "")


def _compute(path: Path, content: bool, found: Future[str]) -> None:
    try:
        found.set_result(kept(path, content=content))
    except OSError as problem:
        LOG.warning("%s: it has no hash: %s", path, problem.strerror)
        found.set_result("")


def known(path: Path, *, content: bool = False) -> str:
    """The hash of a file that was computed before and that is as it was then; else nothing. The file is not read."""
    try:
        kept = json.loads((graphc.make_cache_folder(FOLDER) / _name(path, content)).read_bytes())
        if {name: kept.get(name) for name in STAMP} == _stamp(path, content) and isinstance(kept["sha256"], str):
            return str(kept["sha256"])
    except (OSError, ValueError, KeyError, AttributeError):
        pass
    return ""


def kept(path: Path, *, content: bool = False) -> str:
    """The hash of a file, computed if it is not known; empty for a folder. Raises OSError."""
    if path.is_dir():
        return ""
    found = known(path, content=content)
    if found:
        return found
    stamp = _stamp(path, content)
    found = sha256(path, content=content)
    graphc.keep(FOLDER, _name(path, content), json.dumps({**stamp, "sha256": found}).encode())
    return found


STAMP = ("path", "size", "time", "content")
"""What a file is told by, without reading it."""


def _stamp(path: Path, content: bool) -> dict[str, object]:
    status = path.stat()
    return dict(zip(STAMP, (str(path), status.st_size, status.st_mtime_ns, content), strict=True))


def _name(path: Path, content: bool) -> str:
    """The file that keeps the hash."""
    return f"{hashlib.sha256(f'{path} {content}'.encode(errors='replace')).hexdigest()[:32]}.json"


def sha256(path: Path, *, content: bool = False) -> str:
    """The hash of a file's bytes, or of those behind the header of safetensors. Raises OSError."""
    made = hashlib.sha256()
    with graphc.open_regular(path) as file:
        if content:
            file.seek(begin_of_tensors(file))
        while piece := file.read(PIECE):
            made.update(piece)
    return made.hexdigest()


def short_hash(path: Path) -> str:
    """A1111's old hash of a file, which stands behind the names of ControlNets: of the 64 KiB behind its first MiB."""
    with path.open("rb") as file:
        file.seek(0x100000)
        return hashlib.sha256(file.read(0x10000)).hexdigest()[:8]
