"""Every read model there is: the one place to add a projection.

To add one: write its file and name its ``Projection`` here. A deployment with read models of its own names its own
registry, ``module:attribute``, built from this one and whatever it adds or replaces.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from traceback import extract_tb
from types import ModuleType

from events.errors import SetupError
from projections.beliefs import BELIEFS_PROJECTION
from projections.items import ITEMS_PROJECTION
from projections.memories import MEMORIES_PROJECTION
from projections.memory_cards import MEMORY_CARDS
from projections.projection import Projection
from projections.settlements import SETTLEMENTS_PROJECTION
from projections.task_state import TASK_STATE
from projections.threads import THREADS_PROJECTION

_LIBRARY, _SITE = str(Path(importlib.__file__).parents[1]), "site-packages"

DEFAULT = "projections.registry:PROJECTIONS"

PROJECTIONS: Mapping[str, Projection] = {
    projection.name: projection
    for projection in (
        TASK_STATE, MEMORY_CARDS, SETTLEMENTS_PROJECTION, BELIEFS_PROJECTION, THREADS_PROJECTION, ITEMS_PROJECTION,
        MEMORIES_PROJECTION,
    )
}  # fmt: skip


def load_projections(spec: str = DEFAULT) -> Mapping[str, Projection]:
    """The registry at ``module:attribute``: a mapping of name to projection.

    Raises SetupError, naming what is wrong and where, when there is no such module, attribute or mapping, or when the
    module cannot be imported.
    """
    module, _, attribute = spec.partition(":")
    if not (module and attribute):
        raise SetupError(f"a registry of projections is named `module:attribute`, not {spec!r}")
    imported = _import(spec, module)
    found = getattr(imported, attribute, None)
    if found is None:
        raise SetupError(f"the module {module!r} has no {attribute!r}")
    if not isinstance(found, Mapping) or not all(
        isinstance(value, Projection) and value.name == name for name, value in found.items()
    ):
        raise SetupError(f"{spec!r} is no mapping of names to the projections that bear them")
    return found


def _import(spec: str, module: str) -> ModuleType:
    try:
        return import_module(module)
    except (Exception, SystemExit) as error:  # a deployment's own code: whatever it raises, say where
        if isinstance(error, ModuleNotFoundError) and error.name and f"{module}.".startswith(f"{error.name}."):
            raise SetupError(
                f"the registry {spec!r} cannot be imported: there is no module {error.name!r}; "
                "is its folder on PYTHONPATH?"
            ) from error
        said = " ".join(str(error).split())[:300]
        where = f" at {place}" if (place := _place(error)) else ""
        raise SetupError(f"the registry {spec!r} cannot be imported: {type(error).__name__}{where}: {said}") from error


def _place(error: BaseException) -> str:
    """File and line of an error that an import raised: the last that is no library's, where its author can look."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    files = [(frame.filename, frame.lineno) for frame in extract_tb(error.__traceback__)[1:]]
    ours = [(name, line) for name, line in files if not name.startswith(("<", _LIBRARY)) and _SITE not in name]
    return ":".join(map(str, ours[-1])) if ours else ""
