"""Tables that are looked up, as comparisons and sums: labels, n-grams, places of features."""

from __future__ import annotations

import itertools
from functools import reduce

import numpy as np

from graphc.errors import ModelError
from graphc.frontend.onnx.emit import SizeEmit
from graphc.frontend.onnx.importers.classical.domain import DOMAIN
from graphc.frontend.onnx.importers.movement import cut
from graphc.frontend.onnx.importers.pointwise import converted
from graphc.frontend.onnx.importers.sizes import to_shape
from graphc.frontend.onnx.importers.strings import of_strings, strings
from graphc.frontend.onnx.node import OnnxNode, check_table, fixed_size, refuse_unless
from graphc.frontend.onnx.table import onnx_op
from graphc.ir import Value
from graphc.ir.types import F32, I64, STRING
from graphc.ops.indexing import Gather
from graphc.ops.matmul import MatMul
from graphc.ops.movement import Expand
from graphc.ops.pointwise import Binary, Unary, Where
from graphc.ops.reduce import Reduce

LARGEST_TABLE = 4096
"""Entries of a table that is compared with one by one."""


@onnx_op("ArrayFeatureExtractor", domain=DOMAIN)
def array_feature_extractor(node: OnnxNode, emit: SizeEmit) -> Value:
    """Places of the last axis."""
    x, places = node.input(0), node.input(1)
    flat = to_shape(emit, places, (places.type.size,))
    found = emit(Gather(x.type.rank - 1), x, flat)
    return to_shape(emit, found, (1, *found.shape)) if x.type.rank == 1 else found


@onnx_op("Binarizer", domain=DOMAIN)
def binarizer(node: OnnxNode, emit: SizeEmit) -> Value:
    """1 where a number is above a threshold, else 0."""
    x = node.input(0)
    above = emit(Binary("Greater"), x, emit.constant(node.float("threshold", 0.0), like=x))
    return converted(emit, above, x.dtype)


@onnx_op("LabelEncoder", domain=DOMAIN)
def label_encoder(node: OnnxNode, emit: SizeEmit) -> Value:
    """What a table has for each key, or a default."""
    x = node.input(0)
    keys, values = _table(node, "keys"), _table(node, "values")
    if keys.shape != values.shape or keys.ndim != 1:
        raise ModelError(f"{keys.size} keys for {values.size} values")
    default = _default(node, values.dtype)
    if x.dtype == STRING or values.dtype == STRING:
        given = strings(node, emit, 0) if x.dtype == STRING else emit.array(x, "a key")
        table = dict(zip(keys.tolist(), values.tolist(), strict=True))
        found = [table.get(key, default.item()) for key in given.ravel().tolist()]
        if values.dtype == STRING:
            return emit.constant(of_strings(found, given.shape))
        return emit.constant(np.array(found, values.dtype).reshape(given.shape))
    refuse_unless(keys.size <= LARGEST_TABLE, f"a table of {keys.size} keys is too large")
    result = emit(Expand(x.shape), emit.constant(default.reshape(())))
    for key, value in zip(keys[::-1].astype(x.dtype), values[::-1], strict=True):
        if key != key:
            same = emit(Unary("Not"), emit(Binary("Equal"), x, x))
        else:
            same = emit(Binary("Equal"), x, emit.constant(np.asarray(key)))
        result = emit(Where(), same, emit.constant(np.asarray(value)), result)
    return result


@onnx_op("CategoryMapper", domain=DOMAIN)
def category_mapper(node: OnnxNode, emit: SizeEmit) -> Value:
    """The number of a text, or the text of a number."""
    x = node.input(0)
    texts, numbers = node.strings("cats_strings"), node.ints("cats_int64s")
    if len(texts) != len(numbers):
        raise ModelError(f"{len(texts)} texts for {len(numbers)} numbers")
    if x.dtype == STRING:
        given, known = strings(node, emit, 0), dict(zip(texts, numbers, strict=True))
        default = node.int("default_int64", -1)
        return emit.constant(np.array([known.get(each, default) for each in given.ravel()], I64).reshape(given.shape))
    places = emit.array(x, "a number of a text")
    names = dict(zip(numbers, texts, strict=True))
    unknown = node.string("default_string", "_Unused")
    return emit.constant(of_strings([names.get(each, unknown) for each in places.ravel().tolist()], places.shape))


KINDS = {"strings": "strings", "int64s": "ints", "floats": "floats"}
DTYPES = {"strings": STRING, "int64s": I64, "floats": F32}


def _table(node: OnnxNode, name: str) -> np.ndarray:
    """Keys or values, in the one of the attributes that is given. Strings are objects."""
    for kind, read in KINDS.items():
        if node.has(f"{name}_{kind}"):
            return np.array(getattr(node, read)(f"{name}_{kind}"), DTYPES[kind])
    return _tensor(node, f"{name}_tensor")


def _tensor(node: OnnxNode, name: str) -> np.ndarray:
    proto = node.attribute_tensor(name)
    if proto.dtype.name == "STRING":
        texts = [text.decode("utf-8", "replace") for text in proto.string_data()]  # type: ignore[attr-defined]
        return of_strings(texts, (len(texts),))
    return node.tensor(name)


def _default(node: OnnxNode, dtype: np.dtype) -> np.ndarray:
    if node.has("default_tensor"):
        return _tensor(node, "default_tensor").reshape(())
    if dtype == STRING:
        return np.array(node.string("default_string", "_Unused"), STRING)
    if dtype == F32:
        return np.array(node.float("default_float", -0.0), F32)
    return np.array(node.int("default_int64", -1), dtype)


@onnx_op("TfIdfVectorizer")
def tf_idf(node: OnnxNode, emit: SizeEmit) -> Value:
    """How often each n-gram of a pool occurs, with gaps of up to `max_skip_count` elements, weighted."""
    x, pool = node.input(0), _pool(node)
    if x.type.rank not in (1, 2):
        raise ModelError(f"n-grams of {x.type}")
    if x.dtype == STRING:
        numbers = {text: number for number, text in enumerate(sorted(set(pool.tolist())))}
        texts = strings(node, emit, 0)
        known = [numbers.get(text, -1) for text in texts.ravel().tolist()]
        x = emit.constant(np.array(known, I64).reshape(texts.shape))
        pool = np.array([numbers[text] for text in pool.tolist()], I64)
    rows = to_shape(emit, x, (1, *x.shape)) if x.type.rank == 1 else x
    width = fixed_size(rows.shape[1], "the number of elements")
    places = np.array(node.ints("ngram_indexes"), I64)
    counts: dict[int, Value] = {}
    for length, first, grams in _grams(node, pool):
        found = _occurrences(node, emit, rows, width, length, grams.astype(x.dtype))
        if found is not None:
            counts[first] = found
    total = int(places.max(initial=-1)) + 1
    mode = node.choice("mode", "", ("TF", "IDF", "TFIDF"))
    weights = np.array(node.floats("weights", [1.0] * len(places)), F32)
    parts = [_placed(emit, count, places[first:], weights[first:], total, mode) for first, count in counts.items()]
    zeros = emit(Expand((rows.shape[0], total)), emit.constant(np.zeros((), F32)))
    result = reduce(lambda a, b: emit(Binary("Add"), a, b), parts, zeros)
    return to_shape(emit, result, (*x.shape[:-1], total))


def _pool(node: OnnxNode) -> np.ndarray:
    if node.has("pool_strings"):
        return np.array(node.strings("pool_strings"), STRING)
    return np.array(node.ints("pool_int64s"), I64)


def _grams(node: OnnxNode, pool: np.ndarray) -> list[tuple[int, int, np.ndarray]]:
    """The n-grams of each wanted length: the length, the number of the first of them in the pool, and all of them."""
    starts = [*node.ints("ngram_counts"), len(pool)]
    found, first = [], 0
    for length, (start, end) in enumerate(itertools.pairwise(starts), 1):
        grams = pool[start:end].reshape(-1, length)
        if node.int("min_gram_length") <= length <= node.int("max_gram_length"):
            found.append((length, first, grams))
        first += len(grams)
    return found


def _occurrences(
    node: OnnxNode, emit: SizeEmit, rows: Value, width: int, length: int, grams: np.ndarray
) -> Value | None:
    """[N, G]: how often each n-gram occurs."""
    found = None
    for step in range(1, node.int("max_skip_count") + 2 if length > 1 else 2):
        count = width - (length - 1) * step
        if count < 1 or not len(grams):
            break
        matches = None
        for place in range(length):
            here = to_shape(emit, cut(emit, rows, 1, place * step, count), (rows.shape[0], count, 1))
            same = emit(Binary("Equal"), here, emit.constant(grams[None, None, :, place]))
            matches = same if matches is None else emit(Binary("And"), matches, same)
        assert matches is not None
        here = emit(Reduce("sum", (1,), False), converted(emit, matches, F32))
        found = here if found is None else emit(Binary("Add"), found, here)
    return found


def _placed(emit: SizeEmit, count: Value, places: np.ndarray, weights: np.ndarray, total: int, mode: str) -> Value:
    """[N, total]: each n-gram's count, or whether there is one, times its weight, at its place."""
    if mode == "IDF":
        count = emit(Binary("Min"), count, emit.constant(1.0, like=count))
    number = int(count.shape[1])  # type: ignore[arg-type]
    check_table(number, total)
    table = np.zeros((number, total), F32)
    np.add.at(table, (np.arange(number), places[:number]), 1.0 if mode == "TF" else weights[:number])
    return emit(MatMul(), count, emit.constant(table))
