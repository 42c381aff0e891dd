"""What `graphc demo` shows of this package: a picture from words, by the small model that comes with it."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter

PROMPT = "a red circle left of a blue square"
SEED = 3


def demonstrate(directory: Path, threads: int | None = None) -> Iterator[str]:
    """Paint a picture into a folder; what there is to say of it, line by line. Raises ImageError."""
    if find_spec("PIL") is None:
        yield "pictures    pip install 'graphc[images]' brings what they need"
        return
    from graphc_images.pipeline import load

    start = perf_counter()
    path = directory / "shapes.png"
    load(threads=threads)(PROMPT, seed=SEED).save(path)
    yield f"a picture   {path}: {PROMPT}, in {perf_counter() - start:.1f} s, by a network of 8 million weights"
    yield f'            graphc image "{PROMPT}" -o out.png'
