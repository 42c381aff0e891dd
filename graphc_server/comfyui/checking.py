"""True if a graph can be carried out: what is wrong is said as ComfyUI says it, `error` and `node_errors`.

Source: ComfyUI's execution.py (validate_prompt, validate_inputs).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from graphc_server.comfyui.library import Library
from graphc_server.comfyui.table import CHOICE, NODES, WIDGETS, Input, Node

Graph = Mapping[str, Mapping[str, Any]]
Problem = dict[str, Any]
SHOWN = 20
"""Values of a list that an error names."""

MOST_NODES = 2000
CONVERTED = {"INT": int, "FLOAT": float, "STRING": str, "BOOLEAN": bool}


@dataclass(frozen=True)
class Checked:
    """What was found: the outputs that can be made, what is wrong with which node, and if nothing can be done why."""

    outputs: tuple[str, ...] = ()
    node_errors: Mapping[str, Any] = field(default_factory=dict)
    error: Problem | None = None


def problem(kind: str, message: str, details: str = "", **extra: Any) -> Problem:
    """An error as ComfyUI has it."""
    return {"type": kind, "message": message, "details": details, "extra_info": extra}


def is_link(value: Any) -> bool:
    """True if an input comes from a node."""
    return isinstance(value, list)


def links_of(node: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """The nodes that a node reads from, and which of what they give."""
    for value in node["inputs"].values():
        if is_link(value) and len(value) == 2 and isinstance(value[1], int):
            yield str(value[0]), value[1]


def check(graph: Any, library: Library, wanted: Sequence[str] | None = None) -> Checked:
    """Look at a whole graph; with `wanted`, at these outputs of it alone."""
    wrong = _unlike_a_graph(graph)
    if wrong is not None:
        return Checked(error=wrong)
    outputs = [name for name, node in graph.items() if NODES[node["class_type"]].output]
    if wanted is not None:
        outputs = [name for name in outputs if name in wanted]
    if not outputs:
        return Checked(error=problem("prompt_no_outputs", "Prompt has no outputs"))
    checker = _Checker(graph, library)
    good, errors = [], dict[str, Any]()
    for output in outputs:
        broken = [name for name in checker.behind(output) if checker.problems(name)]
        if not broken:
            good.append(output)
        for name in broken:
            entry = {"errors": checker.problems(name), "dependent_outputs": [], "class_type": graph[name]["class_type"]}
            errors.setdefault(name, entry)["dependent_outputs"].append(output)
    if good:
        return Checked(tuple(good), errors)
    lines = [
        f"* {entry['class_type']} {name}:\n"
        + "\n".join(f"  - {each['message']}: {each['details']}" for each in entry["errors"])
        for name, entry in errors.items()
    ]
    said = problem("prompt_outputs_failed_validation", "Prompt outputs failed validation", "\n".join(lines))
    return Checked(node_errors=errors, error=said)


def _unlike_a_graph(graph: Any) -> Problem | None:
    """What is wrong if it is not a graph of nodes that there are."""
    if not isinstance(graph, dict) or not graph:
        return problem("prompt_no_outputs", "Prompt has no outputs")
    if len(graph) > MOST_NODES:
        return problem("invalid_prompt", f"A prompt has {MOST_NODES} nodes at most", f"{len(graph)}")
    for name, node in graph.items():
        if not isinstance(node, dict) or "class_type" not in node:
            message = "Cannot execute because a node is missing the class_type property."
            return problem("invalid_prompt", message, f"Node ID '#{name}'")
        kind = node["class_type"]
        if not isinstance(kind, str) or kind not in NODES:
            about = node.get("_meta")
            title = about.get("title", kind) if isinstance(about, dict) else kind
            message = f"Node '{title}' not found. The custom node may not be installed."
            known = {"node_id": name, "class_type": kind, "node_title": title}
            return problem("missing_node_type", message, f"Node ID '#{name}'", **known)
        if not isinstance(node.get("inputs"), dict):
            return problem("invalid_prompt", "Cannot execute because a node has no inputs.", f"Node ID '#{name}'")
    return None


class _Checker:
    """Problems of each node by itself, found once."""

    def __init__(self, graph: Graph, library: Library) -> None:
        self.graph, self.library = graph, library
        self._found: dict[str, list[Problem]] = {}
        self._cyclic = in_cycles(graph)

    def behind(self, output: str) -> list[str]:
        """A node, and all that it reads from."""
        found, waiting = [output], [output]
        seen = {output}
        while waiting:
            for name, _ in links_of(self.graph[waiting.pop()]):
                if name in self.graph and name not in seen:
                    seen.add(name)
                    found.append(name)
                    waiting.append(name)
        return found

    def problems(self, name: str) -> list[Problem]:
        """What is wrong with a node."""
        if name not in self._found:
            self._found[name] = list(self._problems(name))
        return self._found[name]

    def _problems(self, name: str) -> Iterator[Problem]:
        if name in self._cyclic:
            yield problem(
                "dependency_cycle", "Dependency cycle detected", f"node {name} reads from itself", node_id=name
            )
            return
        inputs, node = self.graph[name]["inputs"], node_of(self.graph, name)
        good = True
        for each in node.inputs:
            if each.name in inputs:
                found = list(self._of_input(each, inputs[each.name]))
                good = good and not found
                yield from found
            elif not each.optional:
                yield problem("required_input_missing", "Required input is missing", each.name, input_name=each.name)
                good = False
        if good and node.refused is not None:
            given = [each for each in node.inputs if each.name in inputs and not is_link(inputs[each.name])]
            values = {each.name: converted(each, inputs[each.name]) for each in given}
            if said := node.refused(self.library, **values):
                first = node.inputs[0].name
                message, known = "Custom validation failed for node", {"received_value": values.get(first)}
                yield problem("custom_validation_failed", message, f"{first} - {said}", input_name=first, **known)

    def _of_input(self, each: Input, value: Any) -> Iterator[Problem]:
        if is_link(value):
            yield from self._of_link(each, value)
        elif each.type not in WIDGETS:
            said = {"input_name": each.name, "input_config": each.described(self.library), "received_value": value}
            message = "Bad linked input, must be a length-2 list of [node_id, slot_index]"
            yield problem("bad_linked_input", message, each.name, **said)
        else:
            yield from problems_of_value(each, value, self.library)

    def _of_link(self, each: Input, value: list[Any]) -> Iterator[Problem]:
        said = {"input_name": each.name, "input_config": each.described(self.library)}
        if len(value) != 2 or not isinstance(value[1], int) or isinstance(value[1], bool):
            message = "Bad linked input, must be a length-2 list of [node_id, slot_index]"
            yield problem("bad_linked_input", message, each.name, **said, received_value=value)
            return
        source = self.graph.get(str(value[0]))
        if source is None:
            yield problem(
                "bad_linked_input", "Bad linked input, there is no such node", each.name, **said, received_value=value
            )
            return
        gives = NODES[source["class_type"]].gives
        if not 0 <= value[1] < len(gives):
            message = f"Bad linked input, the node gives {len(gives)} values"
            yield problem("bad_linked_input", message, each.name, **said, received_value=value)
        elif not _takes(each, gives[value[1]]):
            received = gives[value[1]]
            details = f"{each.name}, received_type({received}) mismatch input_type({each.type})"
            yield problem(
                "return_type_mismatch", "Return type mismatch between linked nodes", details, **said, received_type=received,
                linked_node=value,
            )  # fmt: skip


def problems_of_value(each: Input, value: Any, library: Library) -> Iterator[Problem]:
    """What is wrong with a value: its type, its range, or that it is not in a list."""
    said = {"input_name": each.name, "input_config": each.described(library), "received_value": value}
    try:
        value = converted(each, value)
    except (ValueError, TypeError, OverflowError) as error:
        message = f"Failed to convert an input value to a {each.type} value"
        details = f"{each.name}, {_short(value)}, {error}"
        yield problem("invalid_input_type", message, details, **said, exception_message=str(error))
        return
    high = highest(each, library)
    if each.low is not None and value < each.low:
        yield problem("value_smaller_than_min", f"Value {value} smaller than min of {each.low}", each.name, **said)
    elif high is not None and value > high:
        yield problem("value_bigger_than_max", f"Value {value} bigger than max of {high}", each.name, **said)
    elif each.type == CHOICE:
        known = each.chosen_from(library)
        if value not in known and not each.anywhere:
            listed = f"{known}" if len(known) <= SHOWN else f"(list of length {len(known)})"
            if len(known) > SHOWN:
                said["input_config"] = None
            yield problem(
                "value_not_in_list", "Value not in list", f"{each.name}: '{_short(value)}' not in {listed}", **said
            )


def highest(each: Input, library: Library) -> float | None:
    """The most that a number may be, for the node and for the server."""
    most = [each.high] if each.high is not None else []
    return min([*most, *([getattr(library.limits, each.limit)] if each.limit else [])], default=None)


def converted(each: Input, value: Any) -> Any:
    """A value as the node gets it. Raises ValueError, TypeError and OverflowError for what is none of its type."""
    if each.type == CHOICE:
        if not isinstance(value, str | int | float):
            raise TypeError(f"{type(value).__name__} is not a name")
        return str(value)
    if isinstance(value, dict | list) or value is None:
        raise TypeError(f"{type(value).__name__} is no {each.type}")
    if each.type == "INT" and isinstance(value, str) and len(value) > SHOWN:
        raise ValueError("it is too long")
    found = CONVERTED[each.type](value)
    if each.type == "FLOAT" and found != found:
        raise ValueError("it is not a number")
    if each.type == "STRING":
        found.encode()
    return found


def _takes(each: Input, given: str) -> bool:
    return each.type == given or (each.type == CHOICE and given in ("STRING", CHOICE)) or each.type == "*"


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 200 else f"{text[:200]}…"


def in_cycles(graph: Graph) -> set[str]:
    """The nodes that read from themselves, or from such: those that cannot be ordered."""
    left = {name: sum(1 for source, _ in links_of(node) if source in graph) for name, node in graph.items()}
    readers: dict[str, list[str]] = {name: [] for name in graph}
    for name, node in graph.items():
        for source, _ in links_of(node):
            if source in graph:
                readers[source].append(name)
    free = [name for name, count in left.items() if not count]
    for name in free:
        for reader in readers[name]:
            left[reader] -= 1
            if not left[reader]:
                free.append(reader)
    return set(graph) - set(free)


def node_of(graph: Graph, name: str) -> Node:
    """A node's row of the table."""
    return NODES[graph[name]["class_type"]]
