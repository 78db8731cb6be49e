"""Routes: at which endpoint a model answers. From a YAML or JSON file, or for every model from one variable.

    models:
      - model: qwen3-32b               # as runs name it; "*" is any model without a route of its own
        base_url: http://gpu:8000/v1
        key_env: QWEN_KEY              # the variable that holds the key; a key itself never stands in the file
        context_tokens: 131072
        price_in: 0.4                  # of a million tokens
    tokens_a_day:
      "*": 2000000                     # of each org that has no line of its own

A model is never replaced by another: a route says where the run's own model is, perhaps under another name there.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

import msgspec

from events.errors import SetupError

KEY_ENV = "REFOLD_MODEL_KEY"
"""The variable that holds the key of a route that names none."""

ANY = "*"

Tokens = Annotated[int, msgspec.Meta(ge=0, le=2**40)]


class Route(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where one model is, and what it takes. Prices are of a million tokens; ``parameters`` go into every request."""

    model: Annotated[str, msgspec.Meta(min_length=1)]
    base_url: str
    name_there: str = ""
    key_env: str = KEY_ENV
    context_tokens: Annotated[int, msgspec.Meta(ge=1_024, le=2**30)] = 32_768
    answer_tokens: Annotated[int, msgspec.Meta(ge=256, le=2**20)] = 4_096
    price_in: Annotated[float, msgspec.Meta(ge=0, le=1e9)] = 0.0
    price_out: Annotated[float, msgspec.Meta(ge=0, le=1e9)] = 0.0
    timeout_s: Annotated[float, msgspec.Meta(gt=0, le=3_600)] = 120.0
    concurrency: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 16
    output: Literal["json_schema", "json_object", "text"] = "json_object"
    parameters: dict[str, Any] = {}

    @property
    def room_tokens(self) -> int:
        """Tokens that a request may have, so that its answer still fits the window."""
        return self.context_tokens - min(self.answer_tokens, self.context_tokens // 4)

    def cost(self, tokens_in: int, tokens_out: int) -> float:
        """What a call costs."""
        return (tokens_in * self.price_in + tokens_out * self.price_out) / 1e6


class Routes(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Every route, and how many tokens each org may spend a day (UTC); without a line there is no limit."""

    models: list[Route] = []
    tokens_a_day: dict[str, Tokens] = {}

    def find(self, model: str) -> Route | None:
        """The route of a model; None where it has none, and for a run that names no model."""
        named = {route.model: route for route in self.models}
        return (named.get(model) or named.get(ANY)) if model else None

    def budget(self, org: str) -> int | None:
        """Tokens that an org may spend a day; None: as many as it likes."""
        return self.tokens_a_day.get(org, self.tokens_a_day.get(ANY))


def read_routes(file: str = "", url: str = "") -> Routes:
    """The routes of a file (empty: none), and one for every other model at ``url``. Raises SetupError in one line."""
    routes = _read(Path(file)) if file else Routes()
    if url:
        routes = msgspec.structs.replace(routes, models=[*routes.models, Route(model=ANY, base_url=url)])
    seen: set[str] = set()
    for route in routes.models:
        parts = urlsplit(route.base_url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise SetupError(f"the route of model {route.model!r}: base_url must be like http://HOST:PORT/v1")
        if route.model in seen:
            raise SetupError(f"model {route.model!r} has two routes: leave one")
        seen.add(route.model)
    return routes


def _read(file: Path) -> Routes:
    try:
        raw = file.read_bytes()
        if file.suffix in (".yaml", ".yml"):
            return msgspec.yaml.decode(raw, type=Routes)
        return msgspec.json.decode(raw, type=Routes)
    except OSError as error:
        raise SetupError(f"the file of model routes cannot be read: {error}") from error
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise SetupError(f"the file of model routes, {file}: {error}") from error


def key_of(route: Route, environ: Mapping[str, str]) -> str:
    """The route's key; empty where its variable is not set."""
    return environ.get(route.key_env, "").strip()
