"""For those who operate it: whether it is well, and numbers for Prometheus."""

from __future__ import annotations

import time
from collections.abc import Iterator

from fastapi import APIRouter
from starlette.responses import PlainTextResponse

from graphc_server.answers import Json
from graphc_server.memory import memory_of_process
from graphc_server.sdapi.painting import Served
from graphc_server.service import Service

router = APIRouter()


@router.get("/health")
async def health(service: Served) -> Json:
    """200 while it paints, or would; 503 while it stops, or if the painting thread has ended."""
    well = service.painter.is_alive() and not service.painter.closing
    return Json({"status": "ok" if well else "stopping"}, 200 if well else 503)


@router.get("/metrics")
def metrics(service: Served) -> PlainTextResponse:
    """Numbers as Prometheus reads them."""
    return PlainTextResponse("\n".join([*_lines(service), ""]), media_type="text/plain; version=0.0.4")


def _lines(service: Service) -> Iterator[str]:
    counts = service.store.counts()
    turn = service.painter.turn
    numbers: dict[str, tuple[str, str, float]] = {
        "graphc_up_seconds": ("gauge", "Since the start.", time.time() - service.began),
        "graphc_memory_bytes": ("gauge", "What the process has in memory.", memory_of_process()),
        "graphc_workers": (
            "gauge",
            "How many paint: this process, or the workers of its broker.",
            service.painter.workers,
        ),
        "graphc_model_loaded": ("gauge", "Whether a model is loaded.", service.models.loaded is not None),
        "graphc_progress": ("gauge", "How much of the job at hand is done, 0 to 1.", turn.share if turn else 0),
        "graphc_answer_seconds_total": ("counter", "Of all answers to requests for pictures.", service.seconds),
    }
    yield "# HELP graphc_jobs Jobs by their state."
    yield "# TYPE graphc_jobs gauge"
    for state in ("waiting", "painting", "done", "failed", "cancelled"):
        yield f'graphc_jobs{{state="{state}"}} {counts.get(state, 0)}'
    for name, (kind, says, value) in numbers.items():
        yield f"# HELP {name} {says}"
        yield f"# TYPE {name} {kind}"
        yield f"{name} {float(value):g}"
