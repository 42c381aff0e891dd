"""Models of scikit-learn as skl2onnx writes them, against onnxruntime on the same file."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

import graphc

if not os.environ.get("GRAPHC_SKLEARN"):
    pytest.skip("scikit-learn takes a process of its own: GRAPHC_SKLEARN=1", allow_module_level=True)
onnxruntime = pytest.importorskip("onnxruntime")
skl2onnx = pytest.importorskip("skl2onnx")

from sklearn import (  # noqa: E402
    cluster,
    decomposition,
    ensemble,
    impute,
    linear_model,
    naive_bayes,
    neighbors,
    neural_network,
    preprocessing,
    svm,
    tree,
)
from sklearn.pipeline import make_pipeline  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

CLASSIFIERS = [
    linear_model.LogisticRegression(),
    linear_model.RidgeClassifier(),
    linear_model.SGDClassifier(random_state=0),
    tree.DecisionTreeClassifier(random_state=0),
    ensemble.RandomForestClassifier(8, random_state=0),
    ensemble.GradientBoostingClassifier(n_estimators=8, random_state=0),
    ensemble.AdaBoostClassifier(n_estimators=5, random_state=0),
    svm.LinearSVC(random_state=0),
    svm.SVC(),
    svm.SVC(probability=True, random_state=0),
    naive_bayes.GaussianNB(),
    neighbors.KNeighborsClassifier(),
    neural_network.MLPClassifier(max_iter=20, random_state=0),
    make_pipeline(preprocessing.MinMaxScaler(), decomposition.PCA(3), svm.SVC(kernel="poly")),
    make_pipeline(impute.SimpleImputer(), preprocessing.PolynomialFeatures(), linear_model.LogisticRegression()),
]

REGRESSORS = [
    linear_model.LinearRegression(),
    tree.DecisionTreeRegressor(random_state=0),
    ensemble.RandomForestRegressor(8, random_state=0),
    ensemble.GradientBoostingRegressor(n_estimators=8, random_state=0),
    svm.SVR(),
    neighbors.KNeighborsRegressor(),
    neural_network.MLPRegressor(max_iter=20, random_state=0),
]

TRANSFORMERS = [
    preprocessing.StandardScaler(),
    preprocessing.RobustScaler(),
    preprocessing.Normalizer(),
    preprocessing.Binarizer(),
    preprocessing.KBinsDiscretizer(4, encode="ordinal"),
    preprocessing.QuantileTransformer(n_quantiles=20),
    preprocessing.PowerTransformer(),
    preprocessing.PolynomialFeatures(),
    decomposition.PCA(3),
    cluster.KMeans(3, random_state=0),
    ensemble.IsolationForest(n_estimators=5, random_state=0),
    svm.OneClassSVM(),
]


def features() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((80, 5)).astype(np.float32)


def labels(x: np.ndarray) -> np.ndarray:
    """Three classes."""
    found: np.ndarray = (x[:, 0] + x[:, 1] * x[:, 2] > 0).astype(int) + (x[:, 3] > 1)
    return found


def written(model: Any, **options: object) -> Any:
    """The model as a file; classifiers give probabilities as a tensor."""
    settings = {id(model): options} if options else None
    return skl2onnx.to_onnx(model, features()[:1], options=settings, target_opset={"": 18, "ai.onnx.ml": 3})


def check(proto: Any) -> None:
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    x = features()
    found = graphc.compile(proto, threads=1).run(X=x)
    for output, wanted in zip(session.get_outputs(), session.run(None, {"X": x}), strict=True):
        if wanted.dtype.kind in "iu":
            np.testing.assert_array_equal(found[output.name], wanted)
        else:
            np.testing.assert_allclose(found[output.name], wanted, 1e-5, 1e-5 * np.abs(wanted).max())


def titled(model: Any) -> str:
    return " ".join(repr(model).split())


@pytest.mark.parametrize("model", CLASSIFIERS, ids=titled)
def test_classifiers(model: Any) -> None:
    x = features()
    model.fit(x, labels(x))
    check(written(model, zipmap=False) if not isinstance(model, svm.LinearSVC) else written(model))


@pytest.mark.parametrize("model", REGRESSORS, ids=titled)
def test_regressors(model: Any) -> None:
    x = features()
    model.fit(x, x[:, 0] ** 2 + x[:, 1])
    check(written(model))


@pytest.mark.parametrize("model", TRANSFORMERS, ids=titled)
def test_transformers(model: Any) -> None:
    model.fit(features())
    check(written(model))
