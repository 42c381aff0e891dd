"""The table of nodes: what each takes and gives, and the function that does it. `/object_info` and docs come from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphc_server.comfyui.library import Library

LARGEST = 16384
"""Pixels of a side (ComfyUI's MAX_RESOLUTION)."""
LARGEST_SEED = 0xFFFFFFFFFFFFFFFF
CHOICE = "COMBO"
"""The type of an input that is one of a list."""
WIDGETS = ("INT", "FLOAT", "STRING", "BOOLEAN", CHOICE)
"""Types whose values may stand in the graph; values of all others come from a node."""

Choices = Sequence[str] | Callable[["Library"], Sequence[str]]


@dataclass(frozen=True)
class Input:
    """An input of a node.

    `choices` are those of a `COMBO`, `low` and `high` the ends of a number. `limit` names the server's own limit of it. `more` is
    what ComfyUI's page wants to know besides. With `anywhere`, a name that is not listed is found in a folder by the node. Of
    pictures the node gets the opacity if the input is `clear`, and else the colours alone.
    """

    name: str
    type: str
    default: Any = None
    low: float | None = None
    high: float | None = None
    step: float | None = None
    choices: Choices = ()
    optional: bool = False
    limit: str = ""
    anywhere: bool = False
    clear: bool = False
    more: Mapping[str, Any] = field(default_factory=dict)

    def chosen_from(self, library: Library) -> list[str]:
        """What a `COMBO` may be."""
        return list(self.choices(library) if callable(self.choices) else self.choices)

    def described(self, library: Library) -> list[Any]:
        """As `/object_info` has it: the type, or the list, and its settings."""
        named = {"default": self.default, "min": self.low, "max": self.high, "step": self.step}
        settings = {name: value for name, value in named.items() if value is not None} | dict(self.more)
        return [self.chosen_from(library) if self.type == CHOICE else self.type, settings]


def whole(name: str, default: int, low: int, high: int, step: int = 1, **more: Any) -> Input:
    """A whole number."""
    return Input(name, "INT", default, low, high, step, **more)


def number(name: str, default: float, low: float, high: float, step: float = 0.01, **more: Any) -> Input:
    """A number."""
    return Input(name, "FLOAT", default, low, high, step, **more)


def text(name: str, default: str = "", **more: Any) -> Input:
    """A text, of one line if not said otherwise."""
    return Input(name, "STRING", default, **more)


def prompt(name: str) -> Input:
    """A text that people write, of several lines."""
    return Input(name, "STRING", more={"multiline": True, "dynamicPrompts": True})


def choice(name: str, choices: Choices, default: str | None = None, **more: Any) -> Input:
    """One of a list."""
    return Input(name, CHOICE, default, choices=choices, **more)


def switch(name: str, default: bool, **more: Any) -> Input:
    """Yes or no."""
    return Input(name, "BOOLEAN", default, **more)


def link(name: str, type: str | None = None, **more: Any) -> Input:
    """What another node gives; the type is the name in large letters if not said otherwise."""
    return Input(name, type or name.upper(), **more)


def seed(name: str = "seed") -> Input:
    """What chance is drawn by."""
    return whole(name, 0, 0, LARGEST_SEED, more={"control_after_generate": True})


def side(name: str, default: int = 512, low: int = 16, step: int = 8, **more: Any) -> Input:
    """A side of a picture, in pixels."""
    return whole(name, default, low, LARGEST, step, **more)


BATCH = whole("batch_size", 1, 1, 4096, limit="pictures")
STEPS = whole("steps", 20, 1, 10000, limit="steps")


@dataclass(frozen=True)
class Node:
    """A kind of node. `function` takes a `Room` and the inputs by name, and returns what it gives: one value, or a tuple of them.

    An `output` is what a graph is for: it is carried out, and with it all that it reads from. `changed` says what else than its
    inputs a node's result depends on, such as when a file was written, and `refused` what is wrong with values that seem right.
    """

    name: str
    category: str
    inputs: tuple[Input, ...]
    gives: tuple[str, ...]
    function: Callable[..., Any]
    title: str
    output: bool = False
    changed: Callable[..., Any] | None = None
    refused: Callable[..., str] | None = None

    @property
    def fixed(self) -> bool:
        """True if it is described the same whatever files there are."""
        return not any(callable(each.choices) for each in self.inputs)

    @property
    def about(self) -> str:
        """What it does, in a sentence or two."""
        return " ".join((self.function.__doc__ or "").split())

    def described(self, library: Library) -> dict[str, Any]:
        """As `/object_info` has it."""
        kinds: dict[str, list[Input]] = {"required": [each for each in self.inputs if not each.optional]}
        if some := [each for each in self.inputs if each.optional]:
            kinds["optional"] = some
        hidden = {"prompt": "PROMPT", "extra_pnginfo": "EXTRA_PNGINFO"} if self.output else {}
        inputs: dict[str, Any] = {
            kind: {each.name: each.described(library) for each in those} for kind, those in kinds.items()
        }
        return {
            "input": inputs | ({"hidden": hidden} if hidden else {}),
            "input_order": {kind: [each.name for each in those] for kind, those in kinds.items()}
            | ({"hidden": list(hidden)} if hidden else {}),
            "output": list(self.gives),
            "output_is_list": [False] * len(self.gives),
            "output_name": list(self.gives),
            "name": self.name,
            "display_name": self.title,
            "description": self.about,
            "python_module": "nodes",
            "category": self.category,
            "output_node": self.output,
        }


NODES: dict[str, Node] = {}
"""By the name that a graph calls them (`class_type`)."""

Function = Callable[..., Any]


def node(
    name: str,
    category: str,
    *inputs: Input,
    gives: str = "",
    title: str = "",
    output: bool = False,
    changed: Function | None = None,
    refused: Function | None = None,
) -> Callable[[Function], Function]:
    """Put a function into the table. `gives` are the types of what it gives, with blanks between."""

    def entered(function: Function) -> Function:
        NODES[name] = Node(
            name, category, inputs, tuple(gives.split()), function, title or name, output, changed, refused
        )
        return function

    return entered
