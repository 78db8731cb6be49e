"""Whom a model acts for, and how its tools ask the HTTP API. Both come from its client, never from the model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from events.errors import Refused

HEADERS = {name: f"x-refold-{name}" for name in ("org", "agent", "user", "task")}
"""What a client says of itself, in UTF-8."""


@dataclass(frozen=True)
class Caller:
    """The organisation, and the agent, user and task that tools are about; empty: not told."""

    org: str = ""
    agent: str = ""
    user: str = ""
    task: str = ""

    @classmethod
    def of_headers(cls, headers: Mapping[str, str]) -> Caller:
        """The caller of an HTTP request. Raises Refused for a header that is no UTF-8."""
        try:
            # the server takes the bytes of a header for Latin-1
            told = {name: headers.get(header, "").encode("latin-1").decode() for name, header in HEADERS.items()}
        except UnicodeError:
            raise Refused(f"{', '.join(HEADERS.values())} are UTF-8", code="bad_parameter", field="headers") from None
        return cls(**told)


@dataclass(frozen=True)
class Api:
    """The HTTP API of an instance, as tools ask it. ``own``: the caller where no headers say who it is."""

    http: httpx.AsyncClient
    own: Caller = Caller()

    def caller(self, headers: Mapping[str, str] | None) -> Caller:
        """Whom a call acts for."""
        return self.own if headers is None else Caller.of_headers(headers)

    async def get(self, caller: Caller, path: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """A document. Raises Refused with the API's own words, also where there is no answer."""
        headers = httpx.Headers({HEADERS["org"]: caller.org} if caller.org else {}, encoding="utf-8")
        given = {name: value for name, value in params.items() if value not in (None, "", [])}
        try:
            answer = await self.http.get(path, params=given, headers=headers)
        except httpx.HTTPError as error:
            raise Refused(f"the backend does not answer: {error!r:.200}", code="unreachable") from error
        try:
            document: dict[str, Any] = answer.json()
        except ValueError as error:
            raise Refused(f"what answers is no Refold: HTTP {answer.status_code}", code="unreachable") from error
        if not answer.is_success:
            raise Refused(str(document.get("detail", answer.reason_phrase)), code=str(document.get("code", "error")))
        return document
