"""ONNX's backend tests as cases: a model, and arrays with the results that it must give for them."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test.case.test_case import TestCase
from onnx.backend.test.loader import load_model_tests

GROUPS = ("node", "simple", "pytorch-converted", "pytorch-operator", "real")

LIGHT = "onnx/backend/test/data/light/"
"""Where the models of the group `real` lie in ONNX's package; all their weights are zeros and ones."""

DataSet = tuple[list[Any], list[Any]]


@dataclass(frozen=True, eq=False)
class Case:
    """One test, with its number among all. Its model is read from the package when it is asked for."""

    number: int
    group: str
    name: str
    test: TestCase

    @property
    def key(self) -> tuple[str, str]:
        """What names the case in every process."""
        return self.group, self.name

    @property
    def tolerance(self) -> dict[str, float]:
        """What a result may differ by, as NumPy names it."""
        return {"rtol": self.test.rtol, "atol": self.test.atol}

    def model(self) -> onnx.ModelProto:
        """The model."""
        if self.test.model is not None:
            return self.test.model
        return onnx.load(self._light() if self.group == "real" else self._folder() / "model.onnx")

    def data_sets(self, model: onnx.ModelProto) -> Iterator[DataSet]:
        """Inputs and expected outputs, in the model's order; sequences are lists."""
        if self.group == "real":
            yield self._light_data(model)
        elif self.test.data_sets is not None:
            for inputs, outputs in self.test.data_sets:
                yield [_plain(item) for item in inputs], [_plain(item) for item in outputs]
        else:
            for folder in sorted(self._folder().glob("test_data_set*")):
                yield _read_all(folder, "input", model.graph.input), _read_all(folder, "output", model.graph.output)

    def _folder(self) -> Path:
        return Path(self.test.model_dir)

    def _light(self) -> Path:
        return Path(onnx.__file__).parents[1] / self.test.url

    def _light_data(self, model: onnx.ModelProto) -> DataSet:
        """Numbers from 0 to 1 in order, as ONNX's runner makes them, and the results that lie beside the model."""
        weights = {tensor.name for tensor in model.graph.initializer}
        inputs = []
        for info in model.graph.input:
            if info.name not in weights:
                shape = [size.dim_value or 1 for size in info.type.tensor_type.shape.dim]
                count = np.prod(shape)
                inputs.append((np.arange(count).reshape(shape) / count).astype(np.float32))
        path = self._light()
        files = [path.with_name(f"{path.stem}_output_{i}.pb") for i in range(len(model.graph.output))]
        return inputs, [_read(file, info) for file, info in zip(files, model.graph.output, strict=True)]


def load_cases() -> list[Case]:
    """Every case, by group and name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = [(group, test) for group in GROUPS for test in load_model_tests(kind=group)]
    found.sort(key=lambda each: (GROUPS.index(each[0]), each[1].name))
    return [Case(number, group, test.name, test) for number, (group, test) in enumerate(found)]


def _plain(item: Any) -> Any:
    if isinstance(item, onnx.TensorProto):
        return numpy_helper.to_array(item)
    return [_plain(each) for each in item] if isinstance(item, list | tuple) else item


def _read_all(folder: Path, kind: str, infos: Any) -> list[Any]:
    files = sorted(folder.glob(f"{kind}_*.pb"), key=lambda file: int(file.stem.rpartition("_")[2]))
    return [_read(file, info) for file, info in zip(files, infos, strict=False)]


def _read(file: Path, info: onnx.ValueInfoProto) -> Any:
    kinds = {
        "sequence_type": (onnx.SequenceProto, numpy_helper.to_list),
        "optional_type": (onnx.OptionalProto, numpy_helper.to_optional),
        "tensor_type": (onnx.TensorProto, numpy_helper.to_array),
    }
    proto_type, convert = kinds[info.type.WhichOneof("value")]
    proto = proto_type()
    proto.ParseFromString(file.read_bytes())
    return convert(proto)
