"""The option `--fast` of commands that run models."""

from __future__ import annotations

from typing import Any

import typer


def fast_option(panel: str | None = None) -> Any:
    """`--fast`, which decides for the process how exactly models multiply; `panel` is where the command's help has it."""
    return typer.Option(
        "--fast",
        callback=_settle_precision,
        help="Let float32 be multiplied as float16, TF32 or bfloat16 where the device is faster so.",
        rich_help_panel=panel,
        show_default=False,
    )


def _settle_precision(fast: bool) -> bool:
    from graphc import set_float32_matmul_precision

    set_float32_matmul_precision("high" if fast else "highest")
    return fast
