"""Every read model there is: the one place to add a projection.

To add one: write its file and name its ``Projection`` here. A deployment with read models of its own names its own
registry, ``module:attribute``, built from this one and whatever it adds or replaces.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

from events.errors import SetupError
from projections.beliefs import BELIEFS_PROJECTION
from projections.memory_cards import MEMORY_CARDS
from projections.projection import Projection
from projections.settlements import SETTLEMENTS_PROJECTION
from projections.task_state import TASK_STATE

DEFAULT = "projections.registry:PROJECTIONS"

PROJECTIONS: Mapping[str, Projection] = {
    projection.name: projection for projection in (TASK_STATE, MEMORY_CARDS, SETTLEMENTS_PROJECTION, BELIEFS_PROJECTION)
}


def load_projections(spec: str = DEFAULT) -> Mapping[str, Projection]:
    """The registry at ``module:attribute``: a mapping of name to projection.

    Raises SetupError, naming what is wrong, when there is no such module, attribute or mapping.
    """
    module, _, attribute = spec.partition(":")
    if not (module and attribute):
        raise SetupError(f"a registry of projections is named `module:attribute`, not {spec!r}")
    try:
        imported = import_module(module)
    except ModuleNotFoundError as error:
        raise SetupError(f"the registry {spec!r} cannot be imported: {error}") from error
    found = getattr(imported, attribute, None)
    if found is None:
        raise SetupError(f"the module {module!r} has no {attribute!r}")
    if not isinstance(found, Mapping) or not all(
        isinstance(value, Projection) and value.name == name for name, value in found.items()
    ):
        raise SetupError(f"{spec!r} is no mapping of names to the projections that bear them")
    return found
