"""What clients read for a model, sync and async: contexts, policies, any other document."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from refold.contexts import CONTEXT_PATH, ContextOptions, context_params
from refold.options import Options
from refold.policies import POLICY_PATH, policy_params

if TYPE_CHECKING:
    from typing_extensions import Unpack  # only mypy reads it: typing has it from Python 3.11 on


class Reads(ABC):
    """Reads of the sync client."""

    _options: Options

    @abstractmethod
    def _read(self, path: str, params: dict[str, Any]) -> Any:
        """A JSON document."""

    def get(self, path: str, **params: Any) -> Any:
        """Read any document of the HTTP API. Raises NotFound, Unavailable, RefoldError."""
        return self._read(path, params)

    def context(self, task: str, query: str = "", **options: Unpack[ContextOptions]) -> dict[str, Any]:
        """What to tell a model before its next decision: ``text``, ``parts``, its id. Raises as ``get``."""
        found: dict[str, Any] = self._read(CONTEXT_PATH, context_params(task, query, options))
        return found

    def policy(self, *, task: str = "", tokens: int | None = None, **asked: Any) -> dict[str, Any]:
        """What was learned to do: ``text`` for a system prompt, ``rules``, ``constraints``, ``notices``.

        Of a ``task``; else of ``agent`` and ``user``, the client's own unless told. All else (``goal``, ``tool``,
        ``tools``, ``mode``, any other name) is the context that triggers are asked about. Raises as ``get``.
        """
        found: dict[str, Any] = self._read(POLICY_PATH, policy_params(task, tokens, asked, self._options))
        return found


class AsyncReads(ABC):
    """Reads of the async client."""

    _options: Options

    @abstractmethod
    async def _read(self, path: str, params: dict[str, Any]) -> Any:
        """A JSON document."""

    async def get(self, path: str, **params: Any) -> Any:
        """Read any document of the HTTP API. Raises NotFound, Unavailable, RefoldError."""
        return await self._read(path, params)

    async def context(self, task: str, query: str = "", **options: Unpack[ContextOptions]) -> dict[str, Any]:
        """What to tell a model before its next decision: ``text``, ``parts``, its id. Raises as ``get``."""
        found: dict[str, Any] = await self._read(CONTEXT_PATH, context_params(task, query, options))
        return found

    async def policy(self, *, task: str = "", tokens: int | None = None, **asked: Any) -> dict[str, Any]:
        """What was learned to do; see ``Reads.policy``."""
        found: dict[str, Any] = await self._read(POLICY_PATH, policy_params(task, tokens, asked, self._options))
        return found
