"""`graphc inspect CHECKPOINT`: which architecture it is, what its components are, and their tensors' types."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from graphc.commands.output import bytes_text, printable, say, say_table
from graphc.weights.checkpoint import open_checkpoint
from graphc.weights.formats.blocks import Blocks
from graphc.weights.formats.scaled import Scaled
from graphc.weights.formats.tensors import Tensor, Tensors, Unreadable
from graphc.weights.layouts import IGNORED, detect, origins
from graphc.weights.layouts.fit import shapes_of
from graphc.weights.lora.files import is_lora, read_lora

OUTSIDE = "(no component)"


def checkpoint_of(path: Path) -> dict[str, Any]:
    """What is in a checkpoint, as JSON. Raises CheckpointError."""
    tensors = open_checkpoint(path)
    if is_lora(tensors):
        return lora_of(path)
    layout = detect(shapes_of(tensors))
    if layout is not None:
        groups = {each: {source.name for _, source in layout.images(each, tensors)} for each in layout.parts}
        name = layout.name
    else:
        names = [each for each in tensors if not IGNORED.match(each)]
        known = [each for each in origins(names) if len(each.sources) == len(names)]
        name = f"{' or '.join(known[0].architectures)}, as diffusers names it" if known else "of no known architecture"
        groups = {known[0].component: set(names)} if known else {}
    groups[OUTSIDE] = tensors.keys() - set().union(*groups.values())
    components = [{"component": each, **_counted(tensors, names)} for each, names in groups.items() if names]
    return {"architecture": name, "components": components}


def lora_of(path: Path) -> dict[str, Any]:
    """What a LoRA changes, as JSON. Raises CheckpointError."""
    components = []
    for component, adapters in read_lora(path).adapters.items():
        ranks = sorted({each.rank for each in adapters.values() if each.is_pair})
        arrays = [array for each in adapters.values() for array in each.tensors.values()]
        components.append(
            {
                "component": component or OUTSIDE,
                "changes": len(adapters),
                "kinds": dict(Counter(each.kind for each in adapters.values()).most_common()),
                "ranks": ranks,
                "bytes": sum(array.nbytes for array in arrays),
                "types": dict(Counter(array.dtype.name for array in arrays).most_common()),
            }
        )
    return {"architecture": "LoRA", "components": components}


def _counted(tensors: Tensors, names: Iterable[str]) -> dict[str, Any]:
    """How many tensors and elements, in how many bytes, and how many tensors of each type."""
    found = [_described(tensors[name]) for name in names]
    return {
        "tensors": len(found),
        "elements": sum(elements for _, elements, _ in found),
        "bytes": sum(size for _, _, size in found),
        "types": dict(Counter(name for name, _, _ in found).most_common()),
    }


def _described(tensor: Tensor) -> tuple[str, int, int]:
    """Type, elements, bytes."""
    if isinstance(tensor, Unreadable):
        return "unreadable", 0, 0
    if isinstance(tensor, Blocks):
        return tensor.type, tensor.size, tensor.raw.nbytes
    if isinstance(tensor, Scaled):
        return f"scaled {tensor.raw.dtype.name}", tensor.size, tensor.raw.nbytes
    return tensor.dtype.name, tensor.size, tensor.nbytes


def say_checkpoint(path: Path) -> None:
    """Print the architecture, and a line for each component."""
    found = checkpoint_of(path)
    say(f"{printable(path)}: {printable(found['architecture'])}")
    say()
    if found["architecture"] == "LoRA":
        say_lora(found["components"])
        return
    rows = [
        (
            each["component"],
            each["tensors"],
            f"{each['elements']:,}",
            bytes_text(each["bytes"]),
            ", ".join(f"{name} {count}" if len(each["types"]) > 1 else name for name, count in each["types"].items()),
        )
        for each in found["components"]
    ]
    say_table(("component", "tensors", "parameters", "size", "types"), rows, "lrrr")


def say_lora(components: Sequence[Mapping[str, Any]]) -> None:
    """Print a line for each component that a LoRA changes."""
    rows = [
        (
            each["component"],
            each["changes"],
            ", ".join(f"{name} {count}" if len(each["kinds"]) > 1 else name for name, count in each["kinds"].items()),
            "–".join(map(str, dict.fromkeys([*each["ranks"][:1], *each["ranks"][-1:]]))),
            bytes_text(each["bytes"]),
            ", ".join(each["types"]),
        )
        for each in components
    ]
    say_table(("component", "changes", "kind", "rank", "size", "types"), rows, "lrlrr")
    say()
    say("graphc run ENGINE --lora FILE runs an engine with it, graphc refit writes one that has it")
