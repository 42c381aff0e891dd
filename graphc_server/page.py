"""The page at `/`: files of the package, to which the browser is told to add nothing of others."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from pathlib import Path

from fastapi import APIRouter
from starlette.responses import Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

FOLDER = str(files("graphc_server") / "page")
POLICY = "; ".join((
    "default-src 'none'", "script-src 'self'", "style-src 'self'", "img-src 'self' data: blob:", "connect-src 'self'",
    "form-action 'none'", "base-uri 'none'", "frame-ancestors 'none'",
))  # fmt: skip
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-cache",
}
router = APIRouter(include_in_schema=False)


@router.get("/")
async def page() -> Response:
    """The page."""
    return Response(_html(), media_type="text/html", headers=HEADERS)


@cache
def _html() -> bytes:
    return Path(FOLDER, "page.html").read_bytes()


class Parts(StaticFiles):
    """Its scripts, styles and icon."""

    def __init__(self) -> None:
        super().__init__(directory=FOLDER)

    async def get_response(self, path: str, scope: Scope) -> Response:
        """One of them."""
        answer = await super().get_response(path, scope)
        answer.headers.update(HEADERS)
        return answer
