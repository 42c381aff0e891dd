"""Make the engines that graphc_images ships: programs without weights, from the published configurations.

    python -m examples.image_engines                    # all; hours on a small machine
    python -m examples.image_engines unet_sd1 clip_l    # some
    python -m examples.image_engines --check clip_l     # whether what is shipped is what would be made
    python -m examples.image_engines --small            # those that tests run

Nothing is downloaded, and no weights are needed or made.
"""

import argparse
from pathlib import Path
from time import perf_counter

from examples.image_engines.export import engines, unpacked
from examples.image_engines.small import SMALL
from examples.image_engines.table import SHIPPED

ROOT = Path(__file__).parents[2]
FOLDERS = {False: ROOT / "graphc_images" / "engines", True: ROOT / "tests" / "images" / "engines"}


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Make the engines that graphc_images ships.")
    parser.add_argument("names", metavar="NAME", nargs="*", help="engines; all if none is given")
    parser.add_argument("--small", action="store_true", help="those of the tests")
    parser.add_argument("--check", action="store_true", help="compare with what is there, and write nothing")
    parser.add_argument("--output", type=Path, metavar="DIR")
    options = parser.parse_args()
    known, folder = SMALL if options.small else SHIPPED, options.output or FOLDERS[options.small]
    if unknown := [name for name in options.names if name not in known]:
        parser.error(f"no such engine: {', '.join(unknown)}; there are {', '.join(known)}")
    different = []
    for name in options.names or known:
        start = perf_counter()
        for made, packed in engines(name, known[name]).items():
            path = folder / f"{made}.gguf.gz"
            if options.check:
                same = path.exists() and unpacked(path.read_bytes()) == unpacked(packed)
                different += [] if same else [made]
                print(f"{made}: {'the same' if same else 'different'}", flush=True)
            else:
                path.write_bytes(packed)
                print(f"{path}  {len(packed):,} bytes  {perf_counter() - start:.0f} s", flush=True)
    if different:
        raise SystemExit(f"other than what is there: {', '.join(different)}")


if __name__ == "__main__":
    main()
