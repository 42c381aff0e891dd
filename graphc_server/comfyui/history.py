"""The queue and the history as ComfyUI shows them: made of the store's jobs.

Source: ComfyUI's execution.py (PromptQueue) and comfy_execution/jobs.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from graphc_server.comfyui.making import PROTOCOL, graph_of
from graphc_server.store import ENDED, Job, Store

STATES = {
    "waiting": "pending",
    "painting": "in_progress",
    "done": "completed",
    "failed": "failed",
    "cancelled": "cancelled",
}
"""Of jobs, and what `/api/jobs` calls them."""

ENDS = ("execution_success", "execution_error", "execution_interrupted")


def entry_of(job: Job) -> list[Any]:
    """A job in the queue: number, name, graph, what was sent besides, outputs."""
    graph, extra, outputs = graph_of(job)
    return [job.number, job.id, graph, extra, outputs]


def history_of(job: Job) -> dict[str, Any]:
    """A job that is over."""
    success = job.state == "done"
    status = {
        "status_str": "success" if success else "error",
        "completed": success,
        "messages": job.result.get("messages", []),
    }
    return {
        "prompt": entry_of(job),
        "outputs": job.result.get("outputs", {}),
        "status": status,
        "meta": job.result.get("meta", {}),
    }


def ended(store: Store, most: int | None = None, offset: int = -1) -> list[Job]:
    """Jobs that are over, the oldest first: the last `most`, or so many from `offset` on. Those that never began are in no
    history."""
    found = [job for job in store.of_protocol(PROTOCOL, *ENDED) if job.started is not None]
    if most is None:
        return found[max(offset, 0) :]
    start = max(len(found) - most, 0) if offset < 0 else offset
    return found[start : start + most]


def summary_of(job: Job, whole: bool = False) -> dict[str, Any]:
    """A job as `/api/jobs` has it; the whole of it with what it made and its graph."""
    graph, extra, _ = graph_of(job)
    outputs = job.result.get("outputs", {})
    images = [
        {**image, "nodeId": name, "mediaType": "images"}
        for name, said in outputs.items()
        for image in said.get("images", [])
    ]
    kept = [image for image in images if image["type"] == "output"]
    messages: dict[str, Any] = dict(job.result.get("messages", []))
    end: dict[str, Any] = next((messages[kind] for kind in ENDS if kind in messages), {})
    found = {
        "id": job.id,
        "status": STATES[job.state],
        "priority": job.number,
        "create_time": int(job.created * 1000),
        "execution_start_time": messages.get("execution_start", {}).get("timestamp"),
        "execution_end_time": end.get("timestamp"),
        "execution_error": messages.get("execution_error"),
        "outputs_count": len(images),
        "preview_output": next(iter(kept or images), None),
        "workflow_id": _workflow(extra).get("id"),
    }
    found = {name: value for name, value in found.items() if value is not None}
    if whole:
        status = history_of(job)["status"] if job.state in ENDED else {}
        found |= {"outputs": outputs, "execution_status": status, "workflow": {"prompt": graph, "extra_data": extra}}
    return found


def _workflow(extra: Mapping[str, Any]) -> Mapping[str, Any]:
    info = extra.get("extra_pnginfo")
    found = info.get("workflow") if isinstance(info, dict) else None
    return found if isinstance(found, dict) else {}


def sorted_by(found: Iterable[dict[str, Any]], by: str, descending: bool) -> list[dict[str, Any]]:
    """Summaries by the time of their making, or by how long they took."""

    def key(each: dict[str, Any]) -> float:
        if by == "execution_duration":
            return float(each.get("execution_end_time", 0) - each.get("execution_start_time", 0))
        return float(each["create_time"])

    return sorted(found, key=key, reverse=descending)
