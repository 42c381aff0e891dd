"""Every compilation in the tests' own process verifies its graph after each stage."""

import os

import pytest


@pytest.fixture(autouse=True)
def verified(monkeypatch):
    if not os.environ.get("GRAPHC_DEBUG"):
        monkeypatch.setattr("graphc.debug.Debug.show", lambda self, text: None)
        monkeypatch.setattr("graphc.debug.Debug.from_environment", lambda: quiet())


def quiet():
    from graphc.debug import Debug

    return Debug(1)
