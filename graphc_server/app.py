"""The ASGI application: all protocols, behind one guard."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from html import escape
from importlib.metadata import version
from typing import Any

from fastapi import FastAPI
from fastapi.concurrency import run_in_threadpool
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import HTMLResponse

from graphc_server import openai, operations, own, page, sdcpp
from graphc_server.answers import answer_errors
from graphc_server.comfyui.attaching import attach
from graphc_server.safety import Guard
from graphc_server.sdapi import controlnet, extras, lists, painting
from graphc_server.service import Service, Setup

SDAPI = (painting.router, lists.router, extras.router, controlnet.router)
ROUTERS = (*SDAPI, openai.router, sdcpp.router, *own.ROUTERS, operations.router, page.router)


def create_app(setup: Setup) -> FastAPI:
    """The application. It paints from its start to its end (ASGI's lifespan)."""
    service = Service(setup)

    @asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        service.start()
        yield
        graphs.sockets.end()
        await run_in_threadpool(service.stop)

    app = FastAPI(title="graphc", version=version("graphc"), lifespan=life, docs_url=None, redoc_url=None)
    app.state.service = service
    for router in ROUTERS:
        app.include_router(router)
    graphs = attach(app, service)
    app.add_api_route("/docs", lambda: HTMLResponse(described(app.openapi())), include_in_schema=False)
    app.mount("/page", page.Parts())
    answer_errors(app)
    if setup.origins:
        app.add_middleware(CORSMiddleware, allow_origins=list(setup.origins), allow_methods=["*"], allow_headers=["*"])
    app.add_middleware(Guard, setup.hosts, setup.origins, setup.users, setup.limits.body)
    return app


def described(description: dict[str, Any]) -> str:
    """The OpenAPI description as a page that needs nothing else."""
    rows = []
    for path, verbs in description["paths"].items():
        for verb, operation in verbs.items():
            says = escape(operation.get("description", operation.get("summary", "")))
            rows.append(f"<tr><td>{verb.upper()}</td><td><code>{escape(path)}</code></td><td>{says}</td></tr>")
            content = operation.get("requestBody", {}).get("content", {})
            for each in content.values():
                name = each["schema"].get("$ref", "").rpartition("/")[2]
                fields = description.get("components", {}).get("schemas", {}).get(name, {}).get("properties", {})
                for field, about in fields.items():
                    said = f"{escape(str(about.get('default', '')))} {escape(about.get('description', ''))}"
                    rows.append(f"<tr><td></td><td>{escape(field)}</td><td>{said}</td></tr>")
    style = "body{font:15px sans-serif;margin:2em}td{padding:.2em 1em .2em 0;vertical-align:top}"
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>graphc</title><style>{style}</style>'
        f'<h1>graphc</h1><p><a href="/openapi.json">openapi.json</a></p><table>{"".join(rows)}</table></html>'
    )
