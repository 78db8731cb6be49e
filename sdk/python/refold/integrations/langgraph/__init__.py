"""Refold as the persistence of LangGraph: a checkpointer and a store.

>>> from refold.integrations.langgraph import RefoldSaver, RefoldStore
>>> graph = builder.compile(checkpointer=RefoldSaver(), store=RefoldStore())  # doctest: +SKIP
"""

try:
    import langgraph.checkpoint.base  # noqa: F401
except ImportError as error:
    raise ImportError("this needs LangGraph: pip install 'refold-sdk[langgraph]'") from error

from refold.integrations.langgraph.saver import RefoldSaver
from refold.integrations.langgraph.store import RefoldStore

__all__ = ["RefoldSaver", "RefoldStore"]
