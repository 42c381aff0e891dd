"""`python -m tests.engine_fuzz COUNT [--seed N] [--sanitize]`: mutated engines, if wanted with our C under AddressSanitizer."""

from __future__ import annotations

import argparse

from .children import fuzz


def main() -> int:
    """The number of faults."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sanitize", action="store_true")
    parser.add_argument("--most", type=int, default=20, help="stop after so many faults")
    chosen = parser.parse_args()
    found = fuzz(chosen.seed, chosen.count, chosen.sanitize, chosen.most)
    for seed, said in found.faults.items():
        print(f"=== {seed}: {said}")
    print(", ".join(f"{number} {what}" for what, number in found.counts.items()) + f", {len(found.faults)} faults")
    return min(len(found.faults), 1)


if __name__ == "__main__":
    raise SystemExit(main())
