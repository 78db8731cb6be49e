"""How a deployment's own tools read: templates from a YAML or JSON file, and the read model of cards made with them.

    templates:
      - tool: get_order            # its name, or a pattern such as "search_*"; the first that fits counts
        title: "Order {order_id}: {status}"
        fields: [status, items, delivery]
        entity: order_id
        ttl_s: 3600

``projections.cards.templates.Template`` tells what each member means. The templates are part of the read model's
fingerprint: after a change a former generation is stale, and is rebuilt as after a change of code.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from events.errors import SetupError
from projections.cards.templates import Template, Templates
from projections.memory_cards import MEMORY_CARDS, memory_cards
from projections.projection import Projection
from projections.registry import load_projections
from services.settings import Settings


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    templates: list[Template]


def projections_of(settings: Settings) -> Mapping[str, Projection]:
    """The projections to run: those of the registry, the cards with the deployment's own templates.

    Raises SetupError for a registry or a file that cannot be used, and where the registry has cards of its own, which
    take no templates.
    """
    projections = load_projections(settings.projections)
    if not settings.card_templates:
        return projections
    templates = read_templates(Path(settings.card_templates))
    if projections.get(MEMORY_CARDS.name) is not MEMORY_CARDS:
        raise SetupError(
            f"REFOLD_CARD_TEMPLATES is set, but {MEMORY_CARDS.name!r} of {settings.projections} is a read model of its "
            "own: give it its templates there, `memory_cards(Templates([...]))`"
        )
    return {**projections, MEMORY_CARDS.name: memory_cards(templates)}


def read_templates(file: Path) -> Templates:
    """The templates of a file. Raises SetupError in one line, naming what is wrong and where."""
    try:
        raw = file.read_bytes()
        decode = msgspec.json.decode if file.suffix == ".json" else msgspec.yaml.decode
        return Templates(decode(raw, type=_File).templates)
    except OSError as error:
        raise SetupError(f"the templates of cards cannot be read: {file}: {error.strerror}") from error
    except msgspec.MsgspecError as error:
        raise SetupError(f"the templates of cards in {file}: {' '.join(str(error).split())}") from error
