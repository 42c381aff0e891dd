"""Answers in JSON, and errors as A1111 words them."""

from __future__ import annotations

import json
import logging
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from graphc import GraphcError
from graphc_server.errors import RequestError, StoreError

LOG = logging.getLogger("graphc.server")


class Json(JSONResponse):
    """JSON in ASCII, which can say whatever a request can."""

    def render(self, content: Any) -> bytes:
        """The bytes."""
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode("ascii")


def error(kind: str, detail: str, status: int, headers: dict[str, str] | None = None) -> Json:
    """An error as A1111 answers it."""
    content = {"error": kind, "detail": detail, "body": "", "errors": f"{status}: {detail}"}
    return Json(content, status, headers)


def answered(request: Request, kind: str, detail: str, status: int, headers: dict[str, str] | None = None) -> Json:
    """An error as the protocol has it that the request is of."""
    if request.url.path.startswith("/v1/"):
        about = "invalid_request_error" if status < 500 else "server_error"
        return Json({"error": {"message": detail, "type": about, "param": None, "code": None}}, status, headers)
    return error(kind, detail, status, headers)


def answer_errors(app: FastAPI) -> None:
    """Have each kind of error answered."""

    async def refused(request: Request, problem: Exception) -> Response:
        status = (
            problem.status if isinstance(problem, RequestError) else 503 if isinstance(problem, StoreError) else 422
        )
        return answered(request, type(problem).__name__, str(problem), status)

    async def of_http(request: Request, problem: Exception) -> Response:
        assert isinstance(problem, HTTPException)
        return answered(request, "HTTPException", problem.detail, problem.status_code, dict(problem.headers or {}))

    async def invalid(request: Request, problem: Exception) -> Response:
        assert isinstance(problem, RequestValidationError)
        found = [{name: each[name] for name in ("loc", "msg", "type")} for each in problem.errors()]
        if request.url.path.startswith("/v1/"):
            said = "; ".join(f"{'.'.join(map(str, each['loc'][1:]))}: {each['msg']}" for each in found)
            return answered(request, "", said, 400)
        return Json({"detail": found}, 422)

    async def of_files(request: Request, problem: Exception) -> Response:
        assert isinstance(problem, OSError)
        LOG.error("%s", problem)
        return answered(request, "OSError", problem.strerror or type(problem).__name__, 503)

    app.add_exception_handler(GraphcError, refused)
    app.add_exception_handler(HTTPException, of_http)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(OSError, of_files)
