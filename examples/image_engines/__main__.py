"""Make the engines that graphc_images ships: programs without weights, from the published configurations.

    python -m examples.image_engines                    # all; hours on a small machine
    python -m examples.image_engines unet_sd1 clip_l    # some
    python -m examples.image_engines --check clip_l     # whether what is shipped is what would be made

Nothing is downloaded, and no weights are needed or made.
"""

import argparse
from pathlib import Path
from time import perf_counter

from examples.image_engines.export import engines, unpacked
from examples.image_engines.table import SHIPPED

FOLDER = Path(__file__).parents[2] / "graphc_images" / "engines"


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Make the engines that graphc_images ships.")
    parser.add_argument("names", metavar="NAME", nargs="*", help="engines; all if none is given")
    parser.add_argument("--check", action="store_true", help="compare with what is shipped, and write nothing")
    parser.add_argument("--output", type=Path, default=FOLDER, metavar="DIR")
    options = parser.parse_args()
    if unknown := [name for name in options.names if name not in SHIPPED]:
        parser.error(f"no such engine: {', '.join(unknown)}; there are {', '.join(SHIPPED)}")
    different = []
    for name in options.names or SHIPPED:
        start = perf_counter()
        for made, packed in engines(name, SHIPPED[name]).items():
            path = options.output / f"{made}.gguf.gz"
            if options.check:
                same = path.exists() and unpacked(path.read_bytes()) == unpacked(packed)
                different += [] if same else [made]
                print(f"{made}: {'the same' if same else 'different'}", flush=True)
            else:
                path.write_bytes(packed)
                print(f"{path}  {len(packed):,} bytes  {perf_counter() - start:.0f} s", flush=True)
    if different:
        raise SystemExit(f"other than what is shipped: {', '.join(different)}")


if __name__ == "__main__":
    main()
