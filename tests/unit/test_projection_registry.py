"""The registry of projections, and a deployment's own."""

from __future__ import annotations

import pytest

from events.errors import SetupError
from events.registry import EVENT_TYPES
from projections.registry import PROJECTIONS, load_projections


def test_the_default_registry_is_found_by_its_name() -> None:
    assert load_projections() is PROJECTIONS
    assert load_projections("projections.registry:PROJECTIONS") is PROJECTIONS


def test_projections_handle_event_types_that_exist_and_own_tables_led_by_org_and_key() -> None:
    for projection in PROJECTIONS.values():
        assert projection.handles <= EVENT_TYPES.keys()
        for table in projection.tables:
            assert [column.name for column in table.primary_key][:2] == ["org", "key"]


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("projections.registry", "module:attribute"),
        ("no.such.module:X", "cannot be imported"),
        ("projections.registry:NOTHING", "has no 'NOTHING'"),
        ("projections.registry:DEFAULT", "no mapping"),
    ],
)
def test_a_wrong_registry_is_named(spec: str, says: str) -> None:
    with pytest.raises(SetupError, match=says):
        load_projections(spec)
