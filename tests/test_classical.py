"""Operators of ai.onnx.ml, node by node, against onnxruntime."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from microsoft_nodes import OPSETS, Case, agrees, run_onnxruntime
from onnx.reference import ReferenceEvaluator

from graphc.errors import GraphcError, ModelError, UnsupportedError
from graphc.frontend.onnx import load
from graphc.ir import interp

DOMAIN = "ai.onnx.ml"
TRANSFORMS = ("NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO", "PROBIT")
RANDOM = np.random.default_rng(11)


@pytest.fixture(autouse=True)
def _opset(monkeypatch):
    monkeypatch.setitem(OPSETS, DOMAIN, 3)


def floats(*shape):
    return RANDOM.standard_normal(shape).astype(np.float32)


def case(operator, inputs, outputs=1, **attributes):
    return Case(operator, inputs, attributes, outputs=outputs, domain=DOMAIN)


def with_nan(shape):
    x = floats(*shape)
    x.flat[::3] = np.nan
    return x


def rows_with_nothing():
    x = floats(4, 5)
    x[1] = 0
    return x


FEATURES = {
    **{f"{norm} {kind}": case("Normalizer", [x], norm=norm) for norm in ("MAX", "L1", "L2")
       for kind, x in (("rows", rows_with_nothing()), ("one row", floats(5)), ("below 0", -np.abs(floats(3, 5))))},
    "scaler of each": case("Scaler", [floats(3, 2)], offset=[1.0, -2.0], scale=[0.5, 3.0]),
    "scaler of all": case("Scaler", [np.arange(6).reshape(2, 3)], offset=[1.5], scale=[0.5]),
    "scaler of none": case("Scaler", [floats(0, 2)], offset=[1.0, -2.0], scale=[0.5, 3.0]),
    "imputer of NaN": case("Imputer", [with_nan((3, 2))], imputed_value_floats=[1.0, 2.0], replaced_value_float=float("nan")),
    "imputer of a number": case("Imputer", [np.arange(6).reshape(2, 3)], imputed_value_int64s=[7], replaced_value_int64=3),
    "vectorizer": case("FeatureVectorizer", [floats(3, 2), floats(3, 4)], inputdimensions=[2, 4]),
    "vectorizer of one": case("FeatureVectorizer", [floats(3)], inputdimensions=[3]),
    "one-hot": case("OneHotEncoder", [np.array([[1, 2], [5, 9]])], cats_int64s=[1, 5, 9]),
    "one-hot of floats": case("OneHotEncoder", [np.array([1.7, 5.0, 2.0], np.float32)], cats_int64s=[1, 5, 9]),
}  # fmt: skip


@pytest.mark.parametrize("name", FEATURES)
def test_features(name):
    agrees(FEATURES[name])


def refuses_one_score(made):
    """Of which onnxruntime leaves one of two columns as it finds it."""
    with pytest.raises(UnsupportedError, match="the function PROBIT of a score of two classes is not supported"):
        load(made.model())


@pytest.mark.parametrize("post", TRANSFORMS)
@pytest.mark.parametrize("classes", [1, 2, 3])
def test_linear_models(classes, post):
    numbers = {
        "coefficients": floats(4 * classes).tolist(),
        "intercepts": floats(classes).tolist(),
        "post_transform": post,
    }
    agrees(case("LinearRegressor", [floats(3, 4)], targets=classes, **numbers))
    labels = list(range(7, 7 + max(classes, 2)))
    if classes == 1 and post == "PROBIT":
        refuses_one_score(case("LinearClassifier", [floats(9, 4)], 2, classlabels_ints=labels, **numbers))
        return
    agrees(case("LinearClassifier", [floats(9, 4)], 2, classlabels_ints=labels, **numbers))
    agrees(case("LinearClassifier", [np.arange(8).reshape(2, 4)], 2, classlabels_ints=labels, **numbers), compiled=True)


@pytest.mark.parametrize("kernel", ["LINEAR", "POLY", "RBF", "SIGMOID"])
def test_support_vector_machines(kernel):
    def machine(vectors, rows=1, pairs=1):
        parameters = [0.3, 0.5, 2.0 if kernel == "POLY" else 0.0]
        numbers = {"support_vectors": floats(3 * vectors), "coefficients": floats(rows * vectors), "rho": floats(pairs)}
        return {
            "kernel_type": kernel,
            "kernel_params": parameters,
            **{name: each.tolist() for name, each in numbers.items()},
        }

    agrees(case("SVMRegressor", [floats(5, 3)], n_supports=4, **machine(4)))
    agrees(case("SVMRegressor", [floats(5, 3)], n_supports=4, one_class=1, **machine(4)))
    for post in TRANSFORMS[:4]:  # scores are no probabilities, of which PROBIT makes quantiles
        for classes in (2, 3, 4):
            counts, labels = [2, 3, 1, 2][:classes], list(range(5, 5 + classes))
            settings = {"vectors_per_class": counts, "classlabels_ints": labels, "post_transform": post}
            numbers = machine(sum(counts), classes - 1, classes * (classes - 1) // 2)
            agrees(case("SVMClassifier", [floats(5, 3)], 2, **settings, **numbers), compiled=classes == 3)
            chances = {name: floats(classes * (classes - 1) // 2).tolist() for name in ("prob_a", "prob_b")}
            agrees(case("SVMClassifier", [floats(40, 3)], 2, **settings, **numbers, **chances), compiled=classes == 3)


def forest(random, trees, features, depth, targets, kind, positive=False):
    """Random trees as attributes, with weights of some targets, which `kind` names so."""
    nodes = {name: [] for name in ("treeids", "nodeids", "featureids", "values", "modes", "truenodeids", "falsenodeids",
                                   "missing_value_tracks_true")}  # fmt: skip
    weights = {name: [] for name in ("treeids", "nodeids", "ids", "weights")}

    def grow(tree, left):
        own, place = nodes["treeids"].count(tree), len(nodes["modes"])
        leaf = left == 0 or random.random() < 0.2
        mode = (
            "LEAF"
            if leaf
            else str(random.choice(["BRANCH_" + each for each in ("LEQ", "LT", "GTE", "GT", "EQ", "NEQ")]))
        )
        row = (
            tree,
            own,
            int(random.integers(features)),
            float(random.integers(-3, 4) / 2),
            mode,
            0,
            0,
            int(random.integers(2)),
        )
        for name, number in zip(nodes, row, strict=True):
            nodes[name].append(number)
        if leaf:
            for target in targets:
                number = np.float32(random.random() if positive else random.standard_normal())
                for name, each in zip(weights, (tree, own, target, float(number)), strict=True):
                    weights[name].append(each)
        else:
            nodes["truenodeids"][place], nodes["falsenodeids"][place] = grow(tree, left - 1), grow(tree, left - 1)
        return own

    for tree in range(trees):
        grow(tree, depth)
    return {f"nodes_{name}": each for name, each in nodes.items()} | {
        f"{kind}_{name}": each for name, each in weights.items()
    }


def asked(random, rows=9, features=3):
    """Features that often lie on a border, and some that are missing."""
    x = (random.integers(-4, 5, (rows, features)) / 2).astype(np.float32)
    x[random.random(x.shape) < 0.1] = np.nan
    return x


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("combine", ["SUM", "AVERAGE", "MIN", "MAX"])
def test_regression_by_trees(seed, combine):
    random = np.random.default_rng(seed)
    trees = forest(random, seed + 1, 3, 3, (0, 1), "target")
    agrees(
        case(
            "TreeEnsembleRegressor",
            [asked(random)],
            n_targets=2,
            aggregate_function=combine,
            base_values=[0.5, -1.0],
            **trees,
        )
    )


def test_features_of_double_precision():
    """Which are compared as they are: 0.1 is not above the split, though it is as float32."""
    trees = {name: each for name, each in NODES.items() if name != "nodes_values"}
    proto = case("TreeEnsembleRegressor", [np.array([[0.1, 0], [np.nextafter(0.1, 1), 0]])], **trees).model()
    split = onnx.numpy_helper.from_array(np.array([0.1, 0, 0]), "nodes_values_as_tensor")
    proto.graph.node[0].attribute.append(onnx.helper.make_attribute("nodes_values_as_tensor", split))
    for attribute in proto.graph.node[0].attribute:
        if attribute.name == "target_weights":
            attribute.name = "target_weights_as_tensor"
            attribute.type, attribute.t.data_type = onnx.AttributeProto.TENSOR, onnx.TensorProto.DOUBLE
            attribute.t.dims.append(1)
            attribute.t.double_data.append(attribute.floats.pop())
    feeds = {"x0": np.array([[0.1, 0], [np.nextafter(0.1, 1), 0]])}
    found, there = interp.run(load(proto), feeds), run_onnxruntime(proto, feeds)
    np.testing.assert_array_equal(found["y0"], [[1], [0]])
    np.testing.assert_array_equal(there["y0"], found["y0"])


def newer(random, trees, features, targets, dtype=np.float32, asked=range(7)):
    """Attributes of TreeEnsemble: trees of some depth, whose nodes ask in all ways."""
    columns = {name: [] for name in ("modes", "splits", "featureids", "truenodeids", "trueleafs", "falsenodeids", "falseleafs",
                                     "missing_value_tracks_true")}  # fmt: skip
    members, leaves, roots = [], [], []

    def grow(left):
        place = len(columns["modes"])
        row = (
            int(random.choice(asked)),
            random.integers(-3, 4) / 2,
            int(random.integers(features)),
            0,
            0,
            0,
            0,
            int(random.integers(2)),
        )
        for name, number in zip(columns, row, strict=True):
            columns[name].append(number)
        if row[0] == 6:
            members.extend([*random.choice([-1.5, -1, -0.5, 0.5, 1, 1.5], random.integers(1, 4)), np.nan])
        for answer in ("true", "false"):
            ends = left == 0 or random.random() < 0.2
            if ends:
                leaves.append((int(random.integers(targets)), random.standard_normal()))
            columns[f"{answer}leafs"][place] = int(ends)
            columns[f"{answer}nodeids"][place] = len(leaves) - 1 if ends else grow(left - 1)
        return place

    for _ in range(trees):
        roots.append(grow(3))
    tensors = {"nodes_modes": np.array(columns.pop("modes"), np.uint8), "nodes_splits": np.array(columns.pop("splits"), dtype),
               "leaf_weights": np.array([weight for _, weight in leaves], dtype)}  # fmt: skip
    if members:
        tensors["membership_values"] = np.array(members, dtype)
    return {
        **{name: onnx.numpy_helper.from_array(tensor, name) for name, tensor in tensors.items()},
        **{f"nodes_{name}": numbers for name, numbers in columns.items()},
        "leaf_targetids": [target for target, _ in leaves], "tree_roots": roots, "n_targets": targets,
    }  # fmt: skip


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("combine", range(4))
def test_newer_trees(seed, combine, monkeypatch):
    monkeypatch.setitem(OPSETS, DOMAIN, 5)
    random = np.random.default_rng(seed)
    dtype = (np.float32, np.float64)[seed % 2]
    x = asked(random, 40).astype(dtype)
    trees = newer(random, 3, 3, 2, dtype, asked=range(6))
    agrees(case("TreeEnsemble", [x], aggregate_function=combine, **trees), compiled=seed < 2)


@pytest.mark.parametrize("post", range(3))
@pytest.mark.parametrize("seed", range(4))
def test_newer_trees_with_members(seed, post, monkeypatch):
    """Beside ONNX's own reference, which knows no functions of scores: onnxruntime takes sets of whole numbers alone, and
    numbers the functions otherwise. No member is 0, which ends a set in the reference."""
    monkeypatch.setitem(OPSETS, DOMAIN, 5)
    random = np.random.default_rng(seed)
    feeds = {"x0": asked(random, 40)}
    proto = case("TreeEnsemble", [feeds["x0"]], post_transform=post, **newer(random, 3, 3, 2)).model()
    (scores,) = ReferenceEvaluator(proto).run(None, feeds)
    wanted = (scores, np.exp(scores) / np.exp(scores).sum(1, keepdims=True), 1 / (1 + np.exp(-scores)))[post]
    np.testing.assert_allclose(interp.run(load(proto), feeds)["y0"], wanted, 1e-5, 1e-6)


def test_newer_trees_that_are_damaged(monkeypatch):
    monkeypatch.setitem(OPSETS, DOMAIN, 5)
    whole = newer(np.random.default_rng(1), 2, 3, 2, asked=range(6))
    endless = [0] * len(whole["nodes_truenodeids"])
    for changed, message in (
        ({"nodes_truenodeids": endless, "nodes_trueleafs": endless}, "a tree has a cycle"),
        ({"tree_roots": [99]}, "a tree leads to node 99"),
        ({"leaf_targetids": [2] * len(whole["leaf_targetids"])}, "a weight is for target 2 of 2"),
        ({"leaf_targetids": [0]}, "1 targets and"),
        ({"nodes_falsenodeids": [0]}, "1 ways"),
        ({"post_transform": 5}, "post_transform 5 is not known"),
        ({"aggregate_function": 4}, "aggregate_function 4 is not known"),
    ):
        with pytest.raises(GraphcError, match=message):
            load(case("TreeEnsemble", [floats(3, 3)], **{**whole, **changed}).model())


def test_large_forests():
    """Of which no table of nodes and leaves could be made."""
    random = np.random.default_rng(3)
    made = case(
        "TreeEnsembleRegressor", [asked(random, 700, 20)], n_targets=3, **forest(random, 60, 20, 8, (0, 2), "target")
    )
    agrees(made, compiled=True)


@pytest.mark.parametrize("post", TRANSFORMS)
@pytest.mark.parametrize("seed", range(3))
def test_classes_by_trees(seed, post):
    random = np.random.default_rng(seed)
    trees = forest(random, 3, 3, 3, (0, 1, 2), "class")
    settings = {"classlabels_int64s": [4, 5, 6], "post_transform": post}
    agrees(case("TreeEnsembleClassifier", [asked(random)], 2, base_values=[0.1, 0.2, 0.3], **settings, **trees))
    agrees(case("TreeEnsembleClassifier", [asked(random, 1)], 2, **settings, **trees), compiled=True)


@pytest.mark.parametrize("post", TRANSFORMS)
@pytest.mark.parametrize("positive", [True, False])
@pytest.mark.parametrize(
    ("targets", "base"), [((0,), []), ((0,), [0.3]), ((1,), []), ((0, 1), []), ((0, 1), [0.3]), ((0, 1), [0.1, 0.2])]
)
def test_two_classes_by_trees(targets, base, positive, post):
    """With the labels 0 and 1: those are what onnxruntime says for others too, where trees speak of both classes."""
    for seed in range(3):
        random = np.random.default_rng(seed)
        trees = forest(random, 2, 3, 2, targets, "class", positive)
        settings = {"classlabels_int64s": [0, 1], "post_transform": post, **({"base_values": base} if base else {})}
        made = case("TreeEnsembleClassifier", [asked(random)], 2, **settings, **trees)
        if post == "PROBIT" and targets == (0,):
            refuses_one_score(made)
        else:
            agrees(made)


def test_a_tree_that_is_a_leaf():
    trees = {f"nodes_{name}": [0] for name in ("treeids", "nodeids", "featureids", "truenodeids", "falsenodeids")}
    weights = {"target_treeids": [0], "target_nodeids": [0], "target_ids": [0], "target_weights": [2.5]}
    agrees(
        case(
            "TreeEnsembleRegressor",
            [floats(3, 2)],
            n_targets=1,
            nodes_modes=["LEAF"],
            nodes_values=[0.0],
            **trees,
            **weights,
        )
    )


def test_categories_of_texts():
    """Which are known when the model is compiled."""
    texts = np.array(["b", "c", "a"], object)
    for operator, attributes, wanted in (
        ("CategoryMapper", {"cats_strings": ["a", "b"], "cats_int64s": [3, 4], "default_int64": -5}, [4, -5, 3]),
        ("OneHotEncoder", {"cats_strings": ["c", "b"]}, [[0, 1], [1, 0], [0, 0]]),
    ):
        proto = case(operator, [texts], **attributes).model()
        found, there = interp.run(load(proto, fixed={"x0": texts}), {}), run_onnxruntime(proto, {"x0": texts})
        np.testing.assert_array_equal(found["y0"], wanted)
        np.testing.assert_array_equal(there["y0"], wanted)


NODES = {"nodes_treeids": [0, 0, 0], "nodes_nodeids": [0, 1, 2], "nodes_featureids": [0, 0, 0], "nodes_values": [1.0, 0.0, 0.0],
         "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"], "nodes_truenodeids": [1, 0, 0], "nodes_falsenodeids": [2, 0, 0],
         "target_treeids": [0], "target_nodeids": [1], "target_ids": [0], "target_weights": [1.0], "n_targets": 1}  # fmt: skip
"""One branch."""


@pytest.mark.parametrize(("changed", "error", "message"), [
    ({"nodes_truenodeids": [7, 0, 0]}, ModelError, "node 0 of tree 0 leads to node 7, which is not there"),
    ({"target_ids": [3]}, ModelError, "a weight is for target 3 of 1"),
    ({"nodes_modes": ["BRANCH_MEMBER", "LEAF", "LEAF"]}, UnsupportedError, "nodes of mode BRANCH_MEMBER are not supported"),
    ({"target_nodeids": [5]}, ModelError, "a weight of node 5 of tree 0, which is not there"),
    ({"target_ids": [0, 0]}, ModelError, "1 nodes, 2 targets and 1 weights of leaves"),
    ({"nodes_featureids": [4, 0, 0]}, ModelError, "a node asks for feature 4 of 2"),
    ({"nodes_modes": ["BRANCH_LEQ"] * 3, "target_nodeids": [0]}, UnsupportedError, "it has no trees"),
    ({"nodes_values": [1.0]}, ModelError, "1 nodes_values for 3 nodes"),
    ({"base_values": [1.0, 2.0]}, ModelError, "2 base values for 1 targets"),
])  # fmt: skip
def test_damaged_or_unknown_trees(changed, error, message):
    with pytest.raises(error, match=message):
        load(case("TreeEnsembleRegressor", [floats(3, 2)], **{**NODES, **changed}).model())


@pytest.mark.parametrize(("operator", "attributes", "message"), [
    ("ZipMap", {"classlabels_int64s": [1, 2]}, r"maps are not supported, only tensors.*options=\{'zipmap': False\}"),
    ("LinearClassifier", {"coefficients": [1.0] * 4, "classlabels_strings": ["a", "b"]}, "labels that are texts"),
    ("SVMClassifier", {"vectors_per_class": [1, 1], "classlabels_ints": [0, 1], "prob_a": [1.0], "support_vectors": [1.0] * 4,
                       "coefficients": [1.0, 1.0], "rho": [0.0], "kernel_params": [0.0] * 3}, "1 and 0 numbers for the prob"),
    ("SVMClassifier", {"classlabels_ints": [0, 1, 2]}, "a linear machine without support vectors"),
    ("SVMRegressor", {"n_supports": 2, "support_vectors": [1.0] * 5, "coefficients": [1.0]}, "5 numbers of 2 support vectors"),
    ("OneHotEncoder", {"cats_int64s": [1], "zeros": 0}, "an error for unknown categories"),
    ("LinearRegressor", {"coefficients": [1.0, 2.0, 3.0], "targets": 2}, "3 coefficients and 0 intercepts for 2 rows"),
    ("Scaler", {"offset": [1.0, 2.0, 3.0], "scale": [1.0, 2.0, 3.0]}, "attribute offset has 3 numbers for 2 features"),
])  # fmt: skip
def test_what_is_refused(operator, attributes, message):
    with pytest.raises(GraphcError, match=f"(?s){message}"):
        load(case(operator, [floats(3, 2)], 2 if "Classifier" in operator else 1, **attributes).model())


def test_a_model_that_gives_maps():
    """Which onnx_ir does not read."""
    proto = case("ZipMap", [floats(3, 2)], classlabels_int64s=[1, 2]).model()
    proto.graph.output[0].type.sequence_type.elem_type.map_type.key_type = 7
    proto.graph.output[0].type.sequence_type.elem_type.map_type.value_type.tensor_type.elem_type = 1
    with pytest.raises(UnsupportedError, match=r"y0 \(map\): maps are not supported.*options=\{'zipmap': False\}"):
        load(proto)
