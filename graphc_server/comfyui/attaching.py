"""ComfyUI's protocol becomes a part of a server."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI

from graphc_server.comfyui import lists, pages, routes, tooling
from graphc_server.comfyui.making import PROTOCOL, Graphs
from graphc_server.service import Service

ROUTERS = (routes.router, pages.router, lists.router)


def attach(app: FastAPI, service: Service, **library: Any) -> Graphs:
    """Answer ComfyUI's requests, all of them also below `/api`. `library` are settings of the `Library`."""
    graphs = Graphs(service, **library)
    app.state.graphs = service.painter.makers[PROTOCOL] = graphs
    for router in ROUTERS:
        app.include_router(router)
        app.include_router(router, prefix="/api", include_in_schema=False)
    app.include_router(tooling.router)
    return graphs
