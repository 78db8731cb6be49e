"""Finding the instance and talking to it over HTTP."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx

from services.cli.errors import NO, UNREACHABLE, USAGE, CliError

TIMEOUT_S = 60.0
_WRONG_NAMES = ("no_projection", "unknown_projection", "no_table")
"""Problems that are wrong usage: the answer lists the names that there are."""


class Client:
    """A connection to one instance. Every method raises CliError, in one line, when the answer is an error."""

    def __init__(self, url: str) -> None:
        self.url = url
        org = os.environ.get("REFOLD_ORG", "")
        headers = httpx.Headers({"x-refold-org": org} if org else {}, encoding="utf-8")
        # trust_env=False: the instance is local or named exactly, a proxy for the outside is no way to it
        self._http = httpx.Client(base_url=url, timeout=TIMEOUT_S, headers=headers, trust_env=False)

    def get(self, path: str, **params: Any) -> Any:
        """A JSON document."""
        return self.document(self.request("GET", path, params=_given(params)))

    def post(self, path: str, body: Any = None, **params: Any) -> Any:
        """The JSON answer to a command."""
        return self.document(self.request("POST", path, params=_given(params), json=body))

    def delete(self, path: str) -> Any:
        """The JSON answer to a removal."""
        return self.document(self.request("DELETE", path))

    def items(self, path: str, limit: int | None = None, **params: Any) -> Iterator[dict[str, Any]]:
        """The items of a list, page after page, at most ``limit``."""
        for page in self.pages(path, limit, **params):
            yield from page["items"]

    def pages(self, path: str, limit: int | None = None, **params: Any) -> Iterator[dict[str, Any]]:
        """The pages of a list, with what else each tells; at most ``limit`` items."""
        cursor, left = None, limit
        while left is None or left > 0:
            page = self.get(path, limit=min(left or 500, 500), cursor=cursor, **params)
            yield page
            left = None if left is None else left - len(page["items"])
            cursor = page["next_cursor"]
            if cursor is None:
                return

    def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        """One request, whatever its status. Raises CliError when there is no answer."""
        try:
            return self._http.request(method, path, **options)
        except httpx.TimeoutException as error:
            raise CliError(f"{self.url} did not answer within {TIMEOUT_S:g} s", UNREACHABLE) from error
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            raise CliError(f"cannot reach {self.url}: {error}; is `refold up` running there?", UNREACHABLE) from error

    def stream(self, path: str, method: str = "GET", *, content: bytes = b"", **params: Any) -> Iterator[bytes]:
        """The body of an answer as it comes. Raises CliError when it is an error, or breaks off."""
        try:
            with self._http.stream(method, path, content=content, params=_given(params)) as response:
                if not response.is_success:
                    response.read()
                    self.document(response)
                yield from response.iter_bytes()
        except (httpx.HTTPError, OSError) as error:
            raise CliError(f"{self.url} broke off: {error or type(error).__name__}", UNREACHABLE) from error

    def document(self, response: httpx.Response) -> Any:
        """The JSON document of an answer."""
        if response.is_success:
            return response.json()
        wrong_name = _problem(response).get("code") in _WRONG_NAMES
        code = UNREACHABLE if response.status_code >= 500 else USAGE if wrong_name else NO
        raise CliError(problem_text(response), code)

    def close(self) -> None:
        """Let the connection go."""
        self._http.close()


def problem_text(response: httpx.Response) -> str:
    """What an error answer says, in one line."""
    problem = _problem(response)
    if "detail" not in problem:
        return f"{response.request.url} answered {response.status_code}: is that a Refold instance?"
    # programs read the code where it stands; people need not
    return str(problem["detail"]).removeprefix(f"{problem.get('code')}: ")


def _problem(response: httpx.Response) -> dict[str, Any]:
    try:
        problem = response.json()
    except ValueError:
        return {}
    return problem if isinstance(problem, dict) else {}


def segment(name: str) -> str:
    """A name as one segment of a path. Raises CliError for one that is no text."""
    _check_text(name)
    # `.` and `..` as they are would be taken for steps on the path
    return quote(name, safe="") if name.strip(".") else name.replace(".", "%2E")


def _check_text(value: Any) -> None:
    # bytes of the command line that are no UTF-8 come as lone surrogates
    if isinstance(value, str) and any("\ud800" <= char <= "\udfff" for char in value):
        raise CliError(f"{value[:100]!r} is no UTF-8 text", USAGE)


def _given(params: Mapping[str, Any]) -> dict[str, Any]:
    for value in params.values():
        _check_text(value)
    return {name: value for name, value in params.items() if value is not None}


@contextmanager
def connected(data: Path | None, url: str | None) -> Iterator[Client]:
    """A client of the instance that the options name. Raises CliError when there is none."""
    client = Client(instance_url(data, url))
    try:
        yield client
    finally:
        client.close()


def instance_url(data: Path | None, url: str | None) -> str:
    """Where the instance answers: --url, else --data, else REFOLD_URL, else REFOLD_DATA, else ``.refold``.

    Raises CliError when nothing runs there.
    """
    named = url or ("" if data else os.environ.get("REFOLD_URL", ""))
    if named:
        if not named.startswith(("http://", "https://")):
            raise CliError(f"{named!r} is no address: write http://HOST:PORT", USAGE)
        return named.rstrip("/")
    return _url_of(data or Path(os.environ.get("REFOLD_DATA") or ".refold"))


def _url_of(folder: Path) -> str:
    from services.embedded.data_dir import running_instance

    start = f"start it with `refold up --data {folder}`, or name one with --data or --url"
    deadline = time.monotonic() + 10
    while True:
        instance = running_instance(folder)
        if instance is None:
            raise CliError(f"no instance runs on {folder.absolute()}: {start}", UNREACHABLE)
        if instance.url:
            return instance.url
        if time.monotonic() > deadline:
            raise CliError(f"the instance on {folder} (pid {instance.pid}) does not get ready", UNREACHABLE)
        time.sleep(0.1)
