"""Errors as RFC 9457 problem documents: what was wrong, where, and what to do."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import orjson
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from events.errors import Poison, RefoldError, Refused, SetupError, Transient

RETRY_AFTER_S = 1
_MEDIA_TYPE = "application/problem+json"
_UNREADABLE = {"bad_json", "bad_event", "too_deep"}
_CONFLICTS = {"in_use", "no_generation", "already_rebuilding", "not_ready", "no_rebuild", "not_the_same"}
_MISSING = {"no_event", "no_checkpoint", "no_context", "no_card"}
_TITLES = {
    400: "Bad request",
    404: "Not found",
    405: "Method not allowed",
    409: "Conflict",
    413: "Too large",
    415: "Unsupported media type",
    422: "Refused",
    500: "Internal error",
    503: "Try again",
}

_log = logging.getLogger("refold.api")


class Problem(Exception):
    """An answer that is an error. ``code`` is stable and machine-readable; ``members`` are added to the document."""

    def __init__(self, status: int, code: str, detail: str, **members: Any) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail
        self.members = members


def problem_response(problem: Problem, headers: Mapping[str, str] | None = None) -> Response:
    """The response of a problem."""
    document = {
        "type": f"urn:refold:problem:{problem.code}",
        "title": _TITLES.get(problem.status, "Error"),
        "status": problem.status,
        "code": problem.code,
        "detail": problem.detail,
        **problem.members,
    }
    return Response(orjson.dumps(document), problem.status, dict(headers or {}), _MEDIA_TYPE)


def status_of(code: str) -> int:
    """The HTTP status of a refusal code."""
    if code in _CONFLICTS:
        return 409
    if code in _MISSING:
        return 404
    return 413 if code == "too_large" else 400 if code in _UNREADABLE else 422


def problem_of(error: RefoldError) -> Problem:
    """The problem that an error of ours means."""
    detail = str(error)
    if isinstance(error, Refused):
        members = {name: value for name, value in {"field": error.field, **error.context}.items() if value}
        return Problem(status_of(error.code), error.code, detail, **members)
    if isinstance(error, Transient):
        return Problem(503, type(error).__name__.lower(), detail)
    if isinstance(error, Poison):
        return Problem(422, "poison", detail)
    if isinstance(error, SetupError):
        return Problem(409, "not_possible", detail)
    return Problem(500, "internal", detail)


def install(app: FastAPI) -> None:
    """Answer every error of the app as a problem document."""

    async def on_problem(request: Request, error: Exception) -> Response:
        assert isinstance(error, Problem)
        return problem_response(error, _headers(error.status))

    async def on_refold_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, RefoldError)
        return await on_problem(request, problem_of(error))

    async def on_http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        code = {404: "no_such_path", 405: "method_not_allowed"}.get(error.status_code, "http")
        more = "; /openapi.json lists the paths" if error.status_code in (404, 405) else ""
        detail = f"{request.method} {request.url.path}: {error.detail}{more}"
        return problem_response(Problem(error.status_code, code, detail), error.headers)

    async def on_parameters(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        wrong = [f"`{'.'.join(str(part) for part in one['loc'][1:])}`: {one['msg']}" for one in error.errors()]
        return await on_problem(request, Problem(422, "bad_parameter", "; ".join(wrong)))

    async def on_bug(request: Request, error: Exception) -> Response:
        _log.error("%s %s failed", request.method, request.url.path, exc_info=error)
        return problem_response(Problem(500, "internal", "an error in Refold itself; its log has the traceback"))

    app.add_exception_handler(Problem, on_problem)
    app.add_exception_handler(RefoldError, on_refold_error)
    app.add_exception_handler(HTTPException, on_http)
    app.add_exception_handler(RequestValidationError, on_parameters)
    app.add_exception_handler(Exception, on_bug)


def _headers(status: int) -> dict[str, str]:
    return {"retry-after": str(RETRY_AFTER_S)} if status == 503 else {}
