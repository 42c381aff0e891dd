"""`python -m tests.random_graphs COUNT [--seed N] [--nodes N] [--only NAME]`: draw graphs, print the smallest of each kind of
disagreement."""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path
from tempfile import gettempdir

import onnx
from hypothesis import HealthCheck, Phase, given, seed, settings

from ..suite.run import quick_kernels
from .check import MOST_NODES, Example, check, examples
from .drawing import AMBIGUOUS
from .nodes import NODES

LAST = Path(gettempdir()) / "random_graph.onnx"
"""Where the graph that is being run lies, for if the process ends."""


def main() -> int:
    """The number of kinds of disagreement."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--nodes", type=int, default=MOST_NODES, help="the most nodes of a graph")
    parser.add_argument("--only", default="", help="only nodes in whose names this is, such as dressed")
    chosen = parser.parse_args()
    among = [name for name in NODES if chosen.only in name]
    quick_kernels()
    found: dict[str, tuple[int, str]] = {}
    counts: Counter[str] = Counter()

    @seed(chosen.seed)
    @settings(max_examples=chosen.count, database=None, deadline=None, phases=[Phase.generate],
              suppress_health_check=list(HealthCheck))  # fmt: skip
    @given(examples(chosen.nodes, among))
    def run(example: Example) -> None:
        onnx.save(example.model(), LAST)
        counts["graphs"] += 1
        counts["nodes"] += len(example.nodes)
        try:
            counts["refused"] += not check(example)
        except Exception as error:  # of any kind: it is counted
            kind = f"{type(error).__name__} of {example.culprit()}"
            counts[kind] += 1
            shown = f"{error}\n{example!r}"
            found[kind] = min(found.get(kind, (len(shown), shown)), (len(shown), shown))

    run()
    for kind, (_, shown) in sorted(found.items()):
        print(f"\n=== {kind}, {counts.pop(kind)} times: {shown}")
    print(f"not drawn, because onnxruntime and the reference differ: {dict(AMBIGUOUS)}")
    print(", ".join(f"{number} {what}" for what, number in counts.items()) + f", {len(found)} kinds of disagreement")
    return len(found)


if __name__ == "__main__":
    raise SystemExit(min(main(), 1))
