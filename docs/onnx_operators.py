"""How each operator of ONNX's own domain is imported: seen by importing ONNX's own tests of it. And what onnxruntime adds."""

from __future__ import annotations

import re
import warnings
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import onnx
from onnx import numpy_helper
from onnx.backend.test.case.test_case import TestCase
from onnx.backend.test.loader import load_model_tests

from graphc.errors import GraphcError, UnsupportedError
from graphc.frontend.onnx import load
from graphc.frontend.onnx.importer import OLDEST_OPSET
from graphc.frontend.onnx.importers.classical.domain import DOMAIN as LEARNING
from graphc.frontend.onnx.importers.microsoft.refused import REFUSED
from graphc.frontend.onnx.specialize import specialize
from graphc.frontend.onnx.table import IMPORTERS, MICROSOFT

HEAD = "| operator | versions | becomes | remarks |\n| --- | --- | --- | --- |"

SHOWN = 8
"""The most core operators that are named."""

ONNXRUNTIME_HEAD = "| operator | remarks |\n| --- | --- |"

NOT_YET = {
    "MaxRoiPool": "windows whose sizes are data",
}
"""Why an operator has no importer. `generate.py` says which of these have got one since."""


@dataclass
class Seen:
    """What importing the tests of one operator showed."""

    imported: int = 0
    unknown: int = 0
    operators: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    refusals: list[str] = field(default_factory=list)


def rows() -> list[str]:
    """A line for each operator of the installed onnx. Raises KeyError if one has neither an importer nor a reason."""
    schemas: dict[str, list[onnx.defs.OpSchema]] = defaultdict(list)
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.domain == "":
            schemas[schema.name].append(schema)
    seen = observe()
    return [row(name, schemas[name], seen.get(name, Seen())) for name in sorted(schemas)]


def onnxruntime_rows() -> list[str]:
    """A line for each operator of onnxruntime's own domains that is known, those that are refused by name at the end."""
    known = sorted((domain, name) for domain, name in IMPORTERS if domain.startswith(MICROSOFT))
    imported = [
        f"| {domain.removeprefix(MICROSOFT).removeprefix('.')}{' ' if domain != MICROSOFT else ''}{name} | "
        f"{first_line(IMPORTERS[domain, name].__doc__)} |"
        for domain, name in known
        if name not in REFUSED or domain != MICROSOFT
    ]
    return imported + [f"| {name} | Refused: {reason}. |" for name, (reason, _) in sorted(REFUSED.items())]


def learning_rows() -> list[str]:
    """A line for each operator of classical machine learning."""
    known = sorted((name, importer) for (domain, name), importer in IMPORTERS.items() if domain == LEARNING)
    return [f"| {name} | {first_line(importer.__doc__)} |" for name, importer in known]


def stale() -> list[str]:
    """Operators that have a reason and an importer."""
    return [name for name in NOT_YET if ("", name) in IMPORTERS]


def row(name: str, schemas: list[onnx.defs.OpSchema], seen: Seen) -> str:
    """One line of the table."""
    versions = ", ".join(str(version) for version in sorted({schema.since_version for schema in schemas}))
    newest = max(schemas, key=lambda schema: schema.since_version)
    importer = IMPORTERS.get(("", name))
    if importer is None and not (newest.has_function or newest.has_context_dependent_function):
        return f"| {name} | {versions} | not yet | {NOT_YET[name]} |"
    made = sorted(seen.operators, key=lambda operator: (-seen.operators[operator], operator))
    shown = ", ".join(made[:SHOWN]) + (", …" if len(made) > SHOWN else "")
    becomes = shown or ("no node" if seen.imported else "")
    remarks = [first_line(importer.__doc__) if importer else "By the body that ONNX's schema gives."]
    remarks += [f"Refused: {reason}." for reason in dict.fromkeys(seen.refusals)]
    if newest.deprecated:
        remarks.append("ONNX has withdrawn it.")
    mark = " †" if seen.unknown else ""
    return f"| {name}{mark} | {versions} | {becomes} | {' '.join(filter(None, remarks))} |"


def first_line(text: str | None) -> str:
    """The first paragraph of a docstring, on one line."""
    return " ".join((text or "").partition("\n\n")[0].split()).replace("|", "\\|")


def observe() -> dict[str, Seen]:
    """Import every test of one node that ONNX has."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = load_model_tests(kind="node")
    found: dict[str, Seen] = defaultdict(Seen)
    for case in cases:
        nodes = case.model.graph.node
        opset = max((each.version for each in case.model.opset_import if each.domain == ""), default=0)
        if len(nodes) == 1 and nodes[0].domain == "" and opset >= OLDEST_OPSET:
            look(case, found[nodes[0].op_type])
    return found


def look(case: TestCase, seen: Seen) -> None:
    """Import one test's model; where it cannot be for all inputs, for those of the test."""
    try:
        try:
            graph = load(case.model)
        except UnsupportedError as error:
            if not any(problem.unknown for problem in error.problems):
                raise
            seen.unknown += 1
            graph = specialize(case.model, given(case)).graph
    except UnsupportedError as error:
        seen.refusals.append(re.sub(r"\d+", "N", re.sub(r" \(opset \d+\)", "", error.problems[0].reason)))
        return
    except GraphcError as error:
        seen.refusals.append(re.sub(r"^node \S+ \(\w+\): ", "", str(error)))
        return
    seen.imported += 1
    for operator in {node.op.name for node in graph.nodes}:
        seen.operators[operator] += 1


def given(case: TestCase) -> dict[str, Any]:
    """The inputs of a test by name."""
    inputs, _ = case.data_sets[0]
    return dict(zip([info.name for info in case.model.graph.input], map(plain, inputs), strict=True))


def plain(item: Any) -> Any:
    """A tensor as an array."""
    if isinstance(item, onnx.TensorProto):
        return numpy_helper.to_array(item)
    return [plain(each) for each in item] if isinstance(item, list | tuple) else item
