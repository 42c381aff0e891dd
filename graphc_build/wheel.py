"""A wheel for a system: the one that any system can have, with ggml's libraries, headers and licences put into it."""

from __future__ import annotations

import base64
import hashlib
import re
import subprocess
import sys
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from graphc.errors import BuildError
from graphc_build.declarations import HEADERS
from graphc_build.parts import Part, bill_of_materials
from graphc_build.targets import Target

ROOT = Path(__file__).parent.parent

DATE = (1980, 1, 1, 0, 0, 0)
"""Of all files: the same source makes the same bytes."""

INSTEAD = re.compile(r"^Requires-Dist: ggml-python\b.*\n", re.M)
"""What a wheel need not ask for if it has ggml."""

TO_COMPILE = re.compile(r"^(Requires-Dist: (?:ml-dtypes|onnx|onnx-ir)\b[^;\n]*)$", re.M)
"""What reads ONNX models, which has no wheels for musl; there the extra `compile` has it."""

TIME_LIMIT = 600


def pure_wheel(folder: Path) -> Path:
    """The wheel without libraries, as pip builds it, in a folder. Raises BuildError."""
    options = ("--quiet", "--disable-pip-version-check", "--no-deps", "--wheel-dir", str(folder))
    command = [sys.executable, "-m", "pip", "wheel", *options, str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=TIME_LIMIT, check=False)
    found = sorted(folder.glob("graphc-*-py3-none-any.whl"))
    if done.returncode or len(found) != 1:
        raise BuildError(f"pip made no wheel of {ROOT}:\n{done.stderr.strip()}")
    return found[0]


def complete(
    pure: Path, target: Target, libraries: list[Path], ggml: Path, parts: Sequence[Part], folder: Path
) -> Path:
    """Write the wheel of a system into a folder: what the pure one has, with ggml, and what is said of the parts that are
    others' (PEP 639, PEP 770)."""
    name, version = pure.name.split("-")[:2]
    info = f"{name}-{version}.dist-info"
    tag = f"py3-none-{target.tag}"
    with zipfile.ZipFile(pure) as archive:
        files = {each: archive.read(each) for each in archive.namelist() if not each.endswith("/")}
    metadata, about = files[f"{info}/METADATA"].decode(), files[f"{info}/WHEEL"].decode()
    if not INSTEAD.search(metadata):
        raise BuildError(f"{pure.name} does not ask for ggml-python")
    licenses = {f"LICENSE.{part.name}": part.text for part in parts if part.text}
    listed = "".join(f"License-File: {each}\n" for each in sorted(licenses))
    if target.system == "musl":
        metadata = TO_COMPILE.sub(r"\1; extra == 'compile'", metadata)
    metadata = INSTEAD.sub("", metadata).replace("License-File: LICENSE\n", f"License-File: LICENSE\n{listed}")
    files[f"{info}/METADATA"] = metadata.encode()
    files[f"{info}/WHEEL"] = re.sub(
        r"Tag: .*", f"Tag: {tag}", about.replace("Root-Is-Purelib: true", "Root-Is-Purelib: false")
    ).encode()
    files |= {f"graphc/ggml/lib/{each.name}": each.read_bytes() for each in libraries}
    files |= {f"graphc/ggml/include/{each}": (ggml / "include" / each).read_bytes() for each in HEADERS}
    files |= {f"{info}/licenses/{each}": text.encode() for each, text in licenses.items()}
    files[f"{info}/sboms/{name}.cdx.json"] = bill_of_materials(name, version, parts).encode()
    del files[f"{info}/RECORD"]
    files[f"{info}/RECORD"] = _record(files, f"{info}/RECORD").encode()
    wheel = folder / f"{name}-{version}-{tag}.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for path in sorted(files, key=lambda path: (path.startswith(info), path.endswith("RECORD"), path)):
            entry = zipfile.ZipInfo(path, DATE)
            entry.external_attr = 0o100644 << 16
            entry.create_system = 3
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, files[path])
    return wheel


def _record(files: Mapping[str, bytes], record: str) -> str:
    """The list of a wheel's files with their hashes."""
    lines = []
    for path in sorted(files):
        digest = base64.urlsafe_b64encode(hashlib.sha256(files[path]).digest()).rstrip(b"=").decode()
        lines.append(f"{path},sha256={digest},{len(files[path])}\n")
    return "".join([*lines, f"{record},,\n"])


def installed_size(wheel: Path) -> int:
    """Bytes of what a wheel installs."""
    with zipfile.ZipFile(wheel) as archive:
        return sum(each.file_size for each in archive.infolist())
