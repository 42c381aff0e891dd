"""Kernels as the files of a folder, which a person reads, changes, and runs a model with."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import dropwhile
from pathlib import Path

from graphc.errors import InputError
from graphc.files import read_file, replacing_folder
from graphc.kernels.gpu.compile import compile_ptx
from graphc.kernels.gpu.forms import Rendered
from graphc.kernels.gpu.render.cuda import file_of
from graphc.kernels.gpu.render.spirv import Binary
from graphc.shapes import Dim, bind_known
from graphc.targets.ggml.generate.generate import Generated
from graphc.targets.ggml.program.program import Call, with_blocks

INDEX = "index.txt"
"""The file of a folder that says which call launches which kernel."""

LONGEST_FILE, LONGEST_NAME = 1 << 22, 80
"""Bytes of a kernel's file, and characters of a layer in its name."""

HEAD = re.compile(r"\bKERNEL\s*\(([^{}]*)\)\s*\{")
COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)

BLOCKS = 2
"""The argument of KERNEL that may be another than in the generated text: how many blocks a multiprocessor should hold."""


@dataclass(frozen=True)
class Changed:
    """A kernel that is not the generated one: text, or SPIR-V."""

    path: Path
    content: str | bytes


def write_kernels(
    folder: Path,
    generated: Generated,
    sizes: Mapping[str, int],
    targets: Sequence[str] = (),
    changed: Mapping[str, Changed] | None = None,
) -> None:
    """Write every kernel's text or SPIR-V, those that are `changed` with their own, a text's PTX for each of the targets, and an
    index of the calls, with numbers where the `sizes` give them. Raises BuildError where PTX cannot be compiled, and OSError."""
    calls = [call for program in with_blocks(generated.program) for call in program.calls if call.launches is not None]
    users: dict[str, list[Call]] = {name: [] for name in generated.kernels}
    for call in calls:
        assert call.launches is not None
        for name in dict.fromkeys(each.rendered.kernel.name for each in call.launches.all):
            users[name].append(call)
    files = {name: file_stem(name, users[name]) for name in generated.kernels}
    codes = contents(generated, changed or {})
    texts = {name: code for name, code in codes.items() if isinstance(code, str)}
    with replacing_folder(folder) as content:
        for name, code in codes.items():
            head = head_of(generated.kernels[name], users[name])
            written = code if isinstance(code, bytes) else (head + code).encode()
            (content / (files[name] + generated.form.ending)).write_bytes(written)
        with ThreadPoolExecutor() as pool:
            pairs = [(name, target) for target in targets for name in texts]
            made = [pool.submit(compile_ptx, texts[name], target) for name, target in pairs]
            for (name, target), ptx in zip(pairs, made, strict=True):
                (content / f"{files[name]}.{target}.ptx").write_text(ptx.result(), encoding="utf-8")
        (content / INDEX).write_text(index_of(generated, calls, files, sizes), encoding="utf-8")


def texts_of(generated: Generated, changed: Mapping[str, Changed]) -> dict[str, str]:
    """Each kernel's text by its name, with what it calls; of those that are `changed`, their own; of SPIR-V its length."""
    codes = contents(generated, changed)
    return {name: code if isinstance(code, str) else f"SPIR-V, {len(code)} bytes" for name, code in codes.items()}


def contents(generated: Generated, changed: Mapping[str, Changed]) -> dict[str, str | bytes]:
    """What each kernel is, by its name: the generated text or SPIR-V, or that of the `changed` ones."""
    return {
        name: own_part(changed[name].content) if name in changed else content_of(each)
        for name, each in generated.kernels.items()
    }


def content_of(rendered: Rendered) -> str | bytes:
    """A kernel's SPIR-V, or its text with what it calls."""
    return rendered.code if isinstance(rendered, Binary) else file_of([rendered])


def read_kernels(folder: Path, generated: Generated) -> dict[str, Changed]:
    """The kernels of a folder that are not the generated ones, by their names. Raises InputError where the folder has not one
    file for each kernel, or one is no text of the kernel that its name says."""
    if not folder.is_dir():
        raise InputError(f"{folder}: there is no such folder; --dump writes one")
    found: dict[str, Changed] = {}
    kernels = generated.kernels
    for path in sorted(folder.glob(f"*{generated.form.ending}")):
        name = path.name.split(".")[0]
        if name in found:
            raise InputError(f"{path}: {found[name].path.name} is {name} too")
        if name not in kernels:
            raise InputError(f"{path}: the model has no kernel {name} on this device; --dump says which it has")
        content = read_file(path, LONGEST_FILE)
        found[name] = Changed(
            path, content if isinstance(kernels[name], Binary) else text_of(path, content, kernels[name])
        )
    if missing := [name for name in kernels if name not in found]:
        raise InputError(f"{folder}: there is no file of {shortened(missing)}; --dump writes all")
    return {name: each for name, each in found.items() if own_part(each.content) != content_of(kernels[name])}


def text_of(path: Path, content: bytes, rendered: Rendered) -> str:
    """A file's text. Raises InputError unless it is that of a kernel."""
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: it is no text: {error}") from error
    check_head(path, text, rendered)
    return text


def own_part(content: str | bytes) -> str | bytes:
    """What a file has besides the comments that a text begins with."""
    return own_text(content) if isinstance(content, str) else content


def check_head(path: Path, text: str, rendered: Rendered) -> None:
    """Raises InputError unless a text has one kernel, which can be launched as the generated one."""
    assert not isinstance(rendered, Binary)
    heads = [signature(each) for each in HEAD.findall(COMMENT.sub(" ", text))]
    (wanted,) = (signature(each) for each in HEAD.findall(rendered.text))
    if len(heads) != 1:
        raise InputError(f"{path}: it has {len(heads)} kernels, and must have one: KERNEL({', '.join(wanted)})")
    (head,) = heads
    if [*head[:BLOCKS], *head[BLOCKS + 1 :]] != [*wanted[:BLOCKS], *wanted[BLOCKS + 1 :]]:
        raise InputError(
            f"{path}: it has another signature than it is launched with: KERNEL({', '.join(head)}) instead of "
            f"KERNEL({', '.join(wanted)})"
        )


def signature(arguments: str) -> list[str]:
    """The arguments of KERNEL, spelled in one way."""
    return [re.sub(r"\s*(\W)\s*", r"\1", " ".join(each.split())) for each in arguments.split(",")]


def own_text(text: str) -> str:
    """A file's text without the comments that it begins with."""
    lines = text.splitlines(keepends=True)
    return "".join(dropwhile(lambda line: not line.strip() or line.startswith("//"), lines))


def file_stem(name: str, calls: Sequence[Call]) -> str:
    """What a kernel's files are called: its name, and the first layer that launches it."""
    layer = next((where for call in calls if (where := ".".join(call.scope) or call.source)), "")
    plain = re.sub(r"[^\w.-]+", "_", layer, flags=re.ASCII).strip("._")[:LONGEST_NAME]
    return f"{name}.{plain}" if plain else name


def head_of(rendered: Rendered, calls: Sequence[Call]) -> str:
    """The comments before a kernel's text."""
    kernel = rendered.kernel
    lines = [
        f"{kernel.name}: launched by {counted(len(calls), 'call')}, {shortened(list(dict.fromkeys(map(layer_of, calls))))}",
        f"{kernel.threads} threads a block, {kernel.shared_bytes} bytes of shared memory",
        "",
        "graphc/kernels/gpu/dialect/README.md says what its functions do. With --kernels and the folder's name a model runs with",
        "what stands here; name, threads and parameters must stay as they are.",
    ]
    return "".join(f"// {line}".rstrip() + "\n" for line in lines) + "\n"


def index_of(generated: Generated, calls: Sequence[Call], files: Mapping[str, str], sizes: Mapping[str, int]) -> str:
    """A table of the launches, in the order of the program."""
    rows = [("layer", "result", "blocks", "threads", "shared memory", "file")]
    for call in calls:
        assert call.launches is not None
        result = f"{call.result.type.lower()} {listed(call.result.shape, sizes)}"
        for each in call.launches.all:
            kernel = each.rendered.kernel
            numbers = (listed(kernel.grid, sizes), str(kernel.threads), str(kernel.shared_bytes))
            rows.append((layer_of(call), result, *numbers, files[kernel.name] + generated.form.ending))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    left = [f"computed by ggml: {plain_text(name)}: {plain_text(why)}" for name, why in generated.left.items()]
    kind = "float16, added in float32" if generated.fast else "float32"
    title = f"{plain_text(generated.program.name)}: {counted(len(generated.kernels), 'kernel')}, products in {kind}"
    return "\n".join([title, "", *lines, *(["", *left] if left else []), ""])


def layer_of(call: Call) -> str:
    """What a person calls a call: its module and its node in the model."""
    return plain_text(": ".join(filter(None, (".".join(call.scope), call.source))) or "the model")


def listed(dims: Sequence[Dim], sizes: Mapping[str, int]) -> str:
    """Sizes, as numbers where they are known."""
    return f"[{', '.join(str(bind_known(dim, sizes)) for dim in dims)}]"


def plain_text(text: str) -> str:
    """A model's text in one line of a comment, which it can neither end nor go on with."""
    return "".join(each if each.isprintable() and each != "\\" else "?" for each in text)


def counted(count: int, what: str) -> str:
    """`1 call`, `2 calls`."""
    return f"{count} {what}{'' if count == 1 else 's'}"


def shortened(names: Sequence[str], most: int = 4) -> str:
    """Names, of many only some."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
