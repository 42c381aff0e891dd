"""`Importer`: walks the model's nodes in order and lets each operator's importer make core operators."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TypeAlias

import numpy as np
import onnx
import onnx_ir

from graphc.errors import InputError, ModelError, Problem, ShapeError
from graphc.frontend.onnx import importers  # noqa: F401  (fills the table)
from graphc.frontend.onnx.bodies import Bind, ImportedBody
from graphc.frontend.onnx.declared import check_declared, check_type, input_type, placeholder
from graphc.frontend.onnx.dims import Dimensions
from graphc.frontend.onnx.emit import SizeEmit
from graphc.frontend.onnx.frame import DOMAINS, Frame, Growing, Item, Slices, ValueList, domains
from graphc.frontend.onnx.functions import Body, has_schema_function, schema_function
from graphc.frontend.onnx.node import PIN, OnnxNode, is_wanted
from graphc.frontend.onnx.observed import Observed
from graphc.frontend.onnx.parameters import parameter_names
from graphc.frontend.onnx.scopes import adopt_scopes, node_scope
from graphc.frontend.onnx.table import IMPORTERS
from graphc.frontend.onnx.tensors import Refused, TensorReader, Unknown
from graphc.ir import Graph, Source, TensorType, Value
from graphc.ir.graph import Node, measured_first
from graphc.ir.types import FLOATS, STRING
from graphc.shapes import Undecidable
from graphc.trace import SILENT, Progress

OLDEST_OPSET = 6
MAX_NODES = 1_000_000
MAX_CALLS = 50

Result: TypeAlias = "str | np.ndarray | list[Result] | None"
"""An output of the model: the name of the graph's, an array of strings, a sequence, or nothing."""

CLEAN_FAILURES = (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError)
"""What numbers that make no sense (strides of 0, too few pads, a rank that an operator does not have) run into."""


class Importer:
    """Imports one model. After `run`, `problems` holds what is unsupported, and `results` what the model's outputs are.

    With `observed`, the inputs of one run, the graph is made for their sizes, and for the elements of those looked at.
    """

    def __init__(
        self,
        model: onnx_ir.Model,
        tensors: TensorReader,
        dimensions: Dimensions,
        fixed: Mapping[str, np.ndarray] | None = None,
        progress: Progress = SILENT,
        observed: Observed | None = None,
    ) -> None:
        self.problems: list[Problem] = []
        self._model = model
        self._tensors = tensors
        self._dimensions = dimensions
        self._fixed = dict(fixed or {})
        self._progress = progress
        self._graph = Graph(model.graph.name or "model")
        self._observed = observed
        self._emit = SizeEmit(self._graph, dimensions, observed)
        self.results: list[Result] = []
        self._unscoped: set[Source] = set()
        self._parameters = parameter_names(model.graph)
        self._count = 0

    def run(self) -> Graph:
        """The graph; it is only of use if `problems` is empty. Raises ModelError and InputError."""
        try:
            return self._run()
        except RecursionError as error:
            raise ModelError("graphs and functions are nested too deeply") from error

    def _run(self) -> Graph:
        source = self._model.graph
        frame = Frame(domains(source.opset_imports))
        if not self._known_opset(frame.opsets.get("", OLDEST_OPSET)):
            return self._graph
        self._inputs(source, frame)
        self._initializers(source, frame)
        with self._progress.stage("import", len(source)) as step:
            for node in source:
                self._node(node, frame)
                step(1)
        self._outputs(source, frame)
        adopt_scopes(self._emit.nodes, self._unscoped)
        self._graph.nodes = self._emit.nodes
        if not self.problems:
            self._graph.nodes = self._in_order()
            self._graph.prune()
        return self._graph

    def _in_order(self) -> list[Node]:
        """See `measured_first`. Raises ModelError."""
        try:
            return measured_first(self._emit.nodes, self._graph.given_sizes())
        except ShapeError as error:
            raise ModelError(str(error)) from error

    def _known_opset(self, opset: int) -> bool:
        newest = onnx.defs.onnx_opset_version()
        if OLDEST_OPSET <= opset <= newest or (opset < OLDEST_OPSET and self._unchanged_since(opset)):
            return True
        reason = f"opset {opset} is not between {OLDEST_OPSET} and {newest}"
        self._problem("model", "opset", reason, "convert it with onnx.version_converter")
        return False

    def _unchanged_since(self, opset: int) -> bool:
        """True if every operator of the model means in an older opset what it does in the oldest that is known."""
        operators = {node.op_type for node in self._model.graph.all_nodes() if node.domain in ("", "ai.onnx")}
        try:
            return all(
                onnx.defs.get_schema(operator, opset).since_version
                == onnx.defs.get_schema(operator, OLDEST_OPSET).since_version
                for operator in operators
            )
        except onnx.defs.SchemaError:
            return False

    def _inputs(self, source: onnx_ir.Graph, frame: Frame) -> None:
        """Every input that is not an initializer; one with a default value counts as that constant."""
        unknown = sorted(set(self._fixed) - {value.name for value in source.inputs})
        if unknown:
            raise InputError(f"the model has no input named {', '.join(unknown)}")
        for value in source.inputs:
            name = value.name or ""
            if name in self._fixed:
                frame.bind(value, self._fixed_input(value, np.asarray(self._fixed[name])))
                continue
            if value.const_value is not None:
                continue
            try:
                frame.bind(value, self._input(value))
            except Refused as refused:
                self._refused(name, "input", refused)
                frame.bind(value, None, missing=True)

    def _fixed_input(self, value: onnx_ir.Value, array: np.ndarray) -> Value:
        constant = self._emit.constant(array, name=value.name or "")
        try:
            check_declared(value, constant)
        except ModelError as error:
            raise InputError(f"the fixed input {error}") from error
        return constant

    def _input(self, value: onnx_ir.Value) -> Item | None:
        if self._observed is not None:
            return self._observed.bind(value, self._graph)
        return self._graph.input(value.name or "", input_type(value, self._dimensions))

    def _initializers(self, source: onnx_ir.Graph, frame: Frame) -> None:
        for name, value in source.initializers.items():
            if value in frame.values:
                continue
            if value.const_value is None:
                raise ModelError(f"initializer {name} has no data")
            try:
                constant = self._emit.parameter(self._tensors.array(value.const_value), name)
                if name in self._parameters and constant.dtype in FLOATS:
                    self._graph.declare_parameter(constant, name)
                if value.is_graph_input() or value.is_graph_output():  # tools leave other declarations as they were
                    check_declared(value, constant)
                frame.bind(value, constant)
            except Refused as refused:
                self._refused(name, "initializer", refused)
                frame.bind(value, None, missing=True)

    def _nodes(self, nodes: Iterable[onnx_ir.Node], frame: Frame) -> None:
        for node in nodes:
            self._node(node, frame)

    def _node(self, node: onnx_ir.Node, frame: Frame) -> None:
        """Import one node; what is unsupported becomes a problem, and its results are taken as declared, if they are."""
        self._count += 1
        if self._count > MAX_NODES:
            raise ModelError(f"the model has more than {MAX_NODES} nodes once its functions and loops are expanded")
        source = self._source(node, frame)
        label = source.name or next((value.name for value in node.outputs if value.name), node.op_type)
        results: Sequence[Item | None] = [None] * len(node.outputs)
        failed = False
        try:
            view = self._view(node, frame)
            if any(value in frame.missing for value in node.inputs):
                self._refuse_unknown(node, view, frame)
                failed = True
            else:
                results = self._results(node, view, frame, source, label)
        except Refused as refused:
            failed = True
            self._refused(label, node.op_type, refused)
        except Undecidable as undecided:
            failed = True
            self._problem(label, node.op_type, f"{undecided} is not known before the model runs", PIN, unknown=True)
        except (ModelError, ShapeError, InputError) as error:
            raise ModelError(f"node {label} ({node.op_type}): {error}") from error
        except CLEAN_FAILURES as error:
            raise ModelError(f"node {label} ({node.op_type}) is not valid: {error}") from error
        for value, item in zip(node.outputs, results, strict=True):
            if item is None and failed and not frame.in_function:
                item = placeholder(value)
            if isinstance(item, Value) and not frame.in_function:
                check_type(value, item)
            frame.bind(value, item, missing=failed and item is None)

    def _results(
        self, node: onnx_ir.Node, view: OnnxNode, frame: Frame, source: Source, label: str
    ) -> list[Item | None]:
        """What the node's outputs stand for. Raises Refused, ModelError and ShapeError."""
        start = len(self._emit.nodes)
        self._emit.source = source
        self._emit.base = label
        results = self._import(node, view, frame)
        items = list(results) if isinstance(results, tuple) else [results]
        items += [None] * (len(node.outputs) - len(items))
        made = {id(output) for new in self._emit.nodes[start:] for output in new.outputs}
        for output, item in zip(node.outputs, items, strict=False):
            if item is None and is_wanted(output) and not self.problems and not frame.in_function:
                raise Refused(f"its result {output.name} is not computed")
            if isinstance(item, Value) and id(item) in made and output.name and not frame.in_function:
                item.name = self._graph.fresh(output.name)
                made.discard(id(item))
        return items[: len(node.outputs)]

    def _import(self, node: onnx_ir.Node, view: OnnxNode, frame: Frame) -> Item | tuple[Item | None, ...] | None:
        """By the model's own function, by our importer, or by the body that the operator's schema gives."""
        domain = DOMAINS.get(node.domain, node.domain)
        function = self._model.functions.get((node.domain, node.op_type, node.overload))
        if function is not None:
            return self._call(Body.of(function), view, frame)
        if (domain, node.op_type) in IMPORTERS:
            results = IMPORTERS[domain, node.op_type](view, self._emit)
            if results is not None:
                return results
        body = schema_function(node, domain, frame.opsets, view)
        if body is None:
            raise _no_importer(domain, node.op_type, view.opset)
        return self._call(body, view, frame)

    def _call(self, body: Body, view: OnnxNode, frame: Frame) -> tuple[Item | None, ...]:
        """A function's body in place of the node that calls it."""
        if frame.depth >= MAX_CALLS:
            raise ModelError(f"functions call each other more than {MAX_CALLS} deep")
        opsets = {**frame.opsets, **domains(body.function.opset_imports)}
        attributes = {**body.defaults, **view.attributes}
        inner = Frame(opsets, attributes, source=self._emit.source, depth=frame.depth + 1)
        for index, value in enumerate(body.function.inputs):
            inner.bind(value, view.inputs[index] if index < len(view.inputs) else None)
        self._nodes(body.function, inner)
        if any(value in inner.missing for value in body.function.outputs):
            raise Refused("an operator in its body is not supported")
        found = {value.name: inner.read(value) for value in body.function.outputs}
        return tuple(found.get(name) for name in body.outputs)

    def _subgraph(self, frame: Frame, graph: onnx_ir.Graph, inputs: Sequence[Item]) -> tuple[Item, ...]:
        """A branch or a loop's body, for these inputs. It sees the values of the graph around it."""
        if len(graph.inputs) != len(inputs):
            raise ModelError(f"its body has {len(graph.inputs)} inputs, {len(inputs)} are given")
        for value, item in zip(graph.inputs, inputs, strict=True):
            frame.bind(value, item)
        self._initializers(graph, frame)
        self._nodes(graph, frame)
        if any(value in frame.missing for value in graph.outputs):
            raise Refused("an operator in its body is not supported")
        results = [frame.read(value) for value in graph.outputs]
        if any(item is None for item in results):
            raise ModelError("a result of its body is missing")
        return tuple(item for item in results if item is not None)

    def _body(self, frame: Frame, graph: onnx_ir.Graph, types: Sequence[TensorType], bind: Bind | None) -> ImportedBody:
        """A branch or a loop's body as a graph of its own, for inputs of these types. Raises Refused.

        What it reads of the graph around it becomes an input, unless it is a constant or made of sizes.
        """
        outer, outside, before = self._emit, self._graph, len(self.problems)
        names = [value.name or "x" for value in graph.inputs] + ["x"] * len(types)
        body = ImportedBody.opened(outer, names[: len(types)], types)
        self._graph, self._emit = body.graph, body.emit

        def around(value: onnx_ir.Value) -> Item | None:
            item = frame.read(value)
            if value in frame.missing:
                raise Refused("an operator that it reads from is not supported")
            if isinstance(item, ValueList):
                return ValueList(tuple(map(body.capture, item.items)))
            if isinstance(item, Slices):
                return Slices(body.capture(item.whole))
            if isinstance(item, Growing):
                raise Unknown("a loop further out carries the sequence")
            return item if item is None else body.capture(item)

        try:
            items = bind(body.emit, body.given, body.capture) if bind else body.given
            within = Frame(frame.opsets, frame.attributes, source=frame.source, depth=frame.depth, around=around)
            body.results = list(self._subgraph(within, graph, items))
        except Refused as refused:
            inside_it = self.problems[before:]
            del self.problems[before:]
            for problem in inside_it[:1]:
                kind = Unknown if problem.unknown else Refused
                raise kind(f"{problem.node} ({problem.operator}) {problem.reason}", problem.help) from refused
            raise
        finally:
            self._graph, self._emit = outside, outer
        return body

    def _view(self, node: onnx_ir.Node, frame: Frame) -> OnnxNode:
        return OnnxNode(
            operator=node.op_type,
            opset=frame.opsets.get(DOMAINS.get(node.domain, node.domain), 0),
            inputs=tuple(frame.read(value) for value in node.inputs),
            outputs=tuple(value.name or "" for value in node.outputs),
            wanted=tuple(map(is_wanted, node.outputs)),
            attributes=frame.attributes_of(node),
            tensors=self._tensors,
            run=lambda graph, inputs: self._subgraph(frame, graph, inputs),
            body=partial(self._body, frame),
            model=self._model.graph,
        )

    def _refuse_unknown(self, node: onnx_ir.Node, view: OnnxNode, frame: Frame) -> None:
        """Report an operator that nothing imports, though its inputs are not known because of an earlier problem."""
        domain = DOMAINS.get(node.domain, node.domain)
        called = (node.domain, node.op_type, node.overload) in self._model.functions
        if not (
            called or (domain, node.op_type) in IMPORTERS or has_schema_function(node.op_type, domain, frame.opsets)
        ):
            raise _no_importer(domain, node.op_type, view.opset)

    def _source(self, node: onnx_ir.Node, frame: Frame) -> Source:
        if frame.in_function:
            return frame.source
        scope = node_scope(node.name or "", node.metadata_props)
        source = Source(node.name or "", node.op_type, scope or ())
        if scope is None:
            self._unscoped.add(source)
        return source

    def _outputs(self, source: onnx_ir.Graph, frame: Frame) -> None:
        if not source.outputs:
            raise ModelError("the model has no outputs")
        names: set[str] = set()
        for value in source.outputs:
            name = value.name or "output"
            if name in names:
                raise ModelError(f"two outputs are called {name}")
            names.add(name)
            try:
                self.results.append(self._output(name, frame.read(value)))
            except Refused as refused:
                self._refused(name, "output", refused)

    def _output(self, name: str, item: Item | None) -> Result:
        """Declare the graph's output, or those of a sequence's tensors."""
        if isinstance(item, ValueList):
            if self._observed is None:
                raise Unknown("is a sequence")
            return [self._output(f"{name}.{index}", inner) for index, inner in enumerate(item.items)]
        if item is not None and not isinstance(item, Value):
            raise Unknown("is a sequence of which the length is known only when the model runs")
        if item is None:
            return None
        if item.dtype == STRING:
            return self._emit.array(item, "a string")
        self._emit.base = name
        self._graph.output(self._emit.materialized(item), name)
        return name

    def _refused(self, node: str, operator: str, refused: Refused) -> None:
        self._problem(node, operator, refused.reason, refused.help, isinstance(refused, Unknown))

    def _problem(self, node: str, operator: str, reason: str, help: str, unknown: bool = False) -> None:
        problem = Problem(node, operator, reason, help, unknown)
        if problem not in self.problems:
            self.problems.append(problem)


def _no_importer(domain: str, operator: str, opset: int) -> Refused:
    if domain:
        return Refused(f"no importer for the operator {operator} of domain {domain}")
    return Refused(f"no importer for the operator {operator} (opset {opset})")
