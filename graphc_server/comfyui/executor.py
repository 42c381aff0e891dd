"""Carries out graphs, node by node; what the last graph made is kept, and what is asked for again is not made again.

Source: ComfyUI's execution.py and comfy_execution/caching.py.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Protocol

import numpy as np

from graphc_images import SettingError
from graphc_images.models import ImageModel
from graphc_images.upscalers.upscaler import Upscaler
from graphc_server import cut_off
from graphc_server.comfyui.checking import Graph, converted, is_link, links_of, node_of, problems_of_value
from graphc_server.comfyui.files import Files
from graphc_server.comfyui.library import Library
from graphc_server.comfyui.table import WIDGETS, Input, Node
from graphc_server.comfyui.values import Shown

TOGETHER = 4
"""How many of the largest pictures may be in one batch."""

Drawn = Callable[[], np.ndarray]
"""Makes a preview [3, height, width], -1 to 1."""


class Interrupted(Exception):
    """Somebody wants the graph to end."""


class NodeError(Exception):
    """A node could not be carried out: which one, with what inputs, and why is the cause."""

    def __init__(self, name: str, inputs: Mapping[str, Any]) -> None:
        super().__init__(name)
        self.name, self.inputs = name, inputs


class Watcher(Protocol):
    """Who is told what happens, and says whether to go on."""

    def goes_on(self) -> bool:
        """True if the graph is to be carried out further."""
        ...

    def cached(self, names: Sequence[str]) -> None:
        """These nodes are there from before."""
        ...

    def executing(self, name: str) -> None:
        """A node begins."""
        ...

    def progress(self, name: str, value: int, most: int, draw: Drawn | None) -> None:
        """A node has done so many steps of so many."""
        ...

    def writes(self, kind: str, below: str, name: str) -> None:
        """A file will be written in one of the folders."""
        ...

    def written(self, below: str, name: str, seed: int, parameters: str) -> None:
        """A finished picture was written, into the folder of those; with its seed and A1111's text."""
        ...

    def sends(self, name: str, value: int, most: int, picture: bytes) -> None:
        """A node has a picture sent to whoever sent the graph: a PNG file, so many of so many."""
        ...

    def executed(self, name: str, shown: Shown, again: bool) -> None:
        """An output node shows this; `again` if it did before."""
        ...


@dataclass
class Room:
    """What nodes work in: models, files, the graph they are part of, and whom they tell how far they are."""

    library: Library
    files: Files
    graph: Graph
    extra: Mapping[str, Any]
    watcher: Watcher
    name: str = ""
    """The node at hand."""

    def step(self, value: int, most: int, draw: Drawn | None = None) -> None:
        """So many steps of so many are done. Raises Interrupted."""
        self.watcher.progress(self.name, value, most, draw)
        self.go_on()

    def go_on(self) -> None:
        """Raises Interrupted if the graph is not to be made any more."""
        if not self.watcher.goes_on():
            raise Interrupted

    def check_pixels(self, width: int, height: int, batch: int = 1) -> None:
        """Raises SettingError for pictures that are larger, or more, than the server allows."""
        limits = self.library.limits
        if width < 1 or height < 1:
            raise SettingError(f"there is no picture of {width} x {height} pixels")
        if width * height > limits.pixels:
            raise SettingError(f"pixels: {width} x {height} are asked for, and the server allows {limits.pixels}")
        if width * height * batch > limits.pixels * TOGETHER:
            raise SettingError(f"pixels: {batch} pictures of {width} x {height} are more than the server has at once")
        if batch > limits.pictures:
            raise SettingError(f"pictures: {batch} are asked for, and the server allows {limits.pictures}")


class Executor:
    """What the last graph made, by what it was made from."""

    def __init__(self) -> None:
        self._made: dict[str, tuple[Any, ...]] = {}
        self._shown: dict[str, Shown] = {}

    def clear(self) -> None:
        """Keep nothing."""
        self._made.clear()
        self._shown.clear()

    def run(self, room: Room, outputs: Sequence[str]) -> None:
        """Carry out these outputs of a graph that was checked. Raises Interrupted, and NodeError from what a node raised."""
        order = ordered(room.graph, outputs)
        marks = signatures(room, order)
        self._forget_but(set(marks.values()))
        there = [name for name in order if self._has(room, name, marks[name])]
        room.watcher.cached(there)
        for name in there:
            if node_of(room.graph, name).output:
                room.watcher.executed(name, self._shown[marks[name]], again=True)
        for name in needed(room.graph, outputs, set(there), order):
            room.go_on()
            self._carry_out(room, name, marks)

    def held(self) -> Iterator[object]:
        """The models and upscalers that are kept."""
        for values in self._made.values():
            for value in values:
                yield from models_in(value)

    def _has(self, room: Room, name: str, mark: str) -> bool:
        if not node_of(room.graph, name).output:
            return mark in self._made
        return mark in self._shown and all(map(room.files.has, self._shown[mark].images))

    def _forget_but(self, marks: set[str]) -> None:
        self._made = {mark: kept for mark, kept in self._made.items() if mark in marks}
        self._shown = {mark: kept for mark, kept in self._shown.items() if mark in marks}

    def _carry_out(self, room: Room, name: str, marks: Mapping[str, str]) -> None:
        node = node_of(room.graph, name)
        room.name = name
        room.watcher.executing(name)
        inputs: dict[str, Any] = {}
        try:
            inputs = self._inputs(room, name, node, marks)
            found = node.function(room, **inputs)
            cut_off.check()
        except Interrupted:
            raise
        except Exception as error:
            raise NodeError(name, inputs) from error
        if isinstance(found, Shown):
            self._shown[marks[name]] = found
            room.watcher.executed(name, found, again=False)
        else:
            self._made[marks[name]] = found if isinstance(found, tuple) and len(node.gives) > 1 else (found,)

    def _inputs(self, room: Room, name: str, node: Node, marks: Mapping[str, str]) -> dict[str, Any]:
        """What a node gets: values as their types, what other nodes made, and what is usual for the rest."""
        given, library = room.graph[name]["inputs"], room.library
        found: dict[str, Any] = {}
        for each in node.inputs:
            if each.name not in given:
                found[each.name] = each.default
            elif is_link(given[each.name]):
                source, place = given[each.name]
                found[each.name] = self._made[marks[str(source)]][place]
                if each.type in WIDGETS:
                    found[each.name] = within(each, found[each.name], library)
                elif each.type == "IMAGE" and not each.clear:
                    found[each.name] = found[each.name][..., :3]
            else:
                found[each.name] = converted(each, given[each.name])
        return found


def within(each: Input, value: Any, library: Library) -> Any:
    """A value that another node made, as a node takes it. Raises SettingError for one that it could not be given either."""
    for wrong in problems_of_value(each, value, library):
        raise SettingError(f"{wrong['message']}: {wrong['details']}")
    return converted(each, value)


def sources_of(graph: Graph, name: str) -> list[str]:
    """The nodes that a node reads from, by inputs that it has."""
    known = {each.name for each in node_of(graph, name).inputs}
    inputs = {key: value for key, value in graph[name]["inputs"].items() if key in known}
    return [source for source, _ in links_of({"inputs": inputs})]


def ordered(graph: Graph, outputs: Sequence[str]) -> list[str]:
    """What the outputs need, each after what it reads from."""
    found: dict[str, None] = {}
    for output in outputs:
        waiting = [(output, False)]
        while waiting:
            name, ready = waiting.pop()
            if ready:
                found[name] = None
            elif name not in found:
                waiting += [(name, True), *((each, False) for each in reversed(sources_of(graph, name)))]
    return list(found)


def needed(graph: Graph, outputs: Sequence[str], there: set[str], order: Sequence[str]) -> list[str]:
    """What has to be carried out: outputs that are not there, and what those need that is not there, in order."""
    found: set[str] = set()
    waiting = [name for name in outputs if name not in there]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += [each for each in sources_of(graph, name) if each not in there]
    return [name for name in order if name in found]


def signatures(room: Room, order: Sequence[str]) -> dict[str, str]:
    """For each node a text that is another when its result is: by its kind, its values, those of all that it reads from, and what
    changed outside. Outputs are told apart by their names."""
    graph, marks = room.graph, dict[str, str]()
    for name in order:
        node, given = node_of(graph, name), graph[name]["inputs"]
        said: list[Any] = [node.name, name if node.output else ""]
        values = {}
        for each in node.inputs:
            value = given.get(each.name, each.default)
            if each.name in given and not is_link(value):
                value = converted(each, value)
            if is_link(value):
                said.append([each.name, marks[str(value[0])], value[1]])
            else:
                values[each.name] = value
                said.append([each.name, repr(value)])
        if node.changed is not None:
            said.append(node.changed(room, **values))
        if node.output:
            said.append([graph, room.extra.get("extra_pnginfo")])
        marks[name] = hashlib.sha256(json.dumps(said, default=str).encode()).hexdigest()
    return marks


def models_in(value: object) -> Iterator[object]:
    """The models and upscalers that a value holds."""
    if isinstance(value, ImageModel | Upscaler):
        yield value
    elif is_dataclass(value) and hasattr(value, "image_model"):
        yield value.image_model
    elif is_dataclass(value):
        for each in fields(value):
            held = getattr(value, each.name)
            if is_dataclass(held):
                yield from models_in(held)
