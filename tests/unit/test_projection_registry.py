"""The registry of projections, and a deployment's own."""

from __future__ import annotations

from pathlib import Path

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
        ("no.such.module:X", "no module 'no'; is its folder on PYTHONPATH"),
        ("projections.nothing:X", "no module 'projections.nothing'; is its folder"),
        ("projections.registry:NOTHING", "has no 'NOTHING'"),
        ("projections.registry:DEFAULT", "no mapping"),
    ],
)
def test_a_wrong_registry_is_named(spec: str, says: str) -> None:
    with pytest.raises(SetupError, match=says):
        load_projections(spec)


@pytest.mark.parametrize(
    ("source", "line", "says"),
    [
        ("x = 1\ndef broken(:\n", 2, "SyntaxError"),
        ("\n\nx = nothing\n", 3, "NameError"),
        ("import no_such_helper\n", 1, "ModuleNotFoundError"),
        ("from projections.registry import NOTHING\n", 1, "ImportError"),
        ("def f():\n    raise ValueError('one\\ntwo')\nf()\n", 2, "ValueError"),
        ("import sys\nsys.exit('no licence')\n", 2, "SystemExit"),
        ("import json\njson.loads('{')\n", 0, "JSONDecodeError"),
    ],
)
def test_an_error_of_the_module_is_one_line_that_says_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, line: int, says: str
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    module = f"mine_{says.lower()}"
    (tmp_path / f"{module}.py").write_text(source)
    with pytest.raises(SetupError) as raised:
        load_projections(f"{module}:PROJECTIONS")
    said = str(raised.value)
    assert module in said and says in said and "\n" not in said
    assert "PYTHONPATH" not in said
    assert f"{module}.py:{line or 2}" in said
