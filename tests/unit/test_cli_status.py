"""What ``refold status`` shows of a document: on paper, and as a view that fits into its terminal."""

from __future__ import annotations

from typing import Any

import pytest
from rich.console import Console

from services.cli.status import print_status
from services.cli.watch import HISTORY, History, sparkline, view


def document(**changes: Any) -> dict[str, Any]:
    one = {
        "name": "task_state", "generation": 1, "lag_events": 1500, "lag_s": 12.0, "events_per_s": 300.0, "eta_s": 5.0,
        "workers": 2, "state": "behind", "dead_letters": 1, "parked_keys": 1, "hint": "", "rebuild": None,
    }  # fmt: skip
    given = {
        "url": "http://instance", "ready": True, "events": 20_000, "partitions": 8, "not_archived": 7,
        "has_refused": True, "unknown_types": 2, "projections": [one],
        "reactors": [{"name": "settler", "lag_events": 3, "lag_s": 1.0, "workers": 0, "unowned": 8}], "services": {},
    }  # fmt: skip
    given["projections"] = [one | change for change in changes.pop("projections", [{}])]
    return given | changes


@pytest.fixture(autouse=True)
def _terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")


def test_a_status_tells_lag_pace_and_what_to_look_at(capsys: pytest.CaptureFixture[str]) -> None:
    print_status(document())
    out = capsys.readouterr().out
    assert "20,000 events in 8 partitions, 7 more not archived yet" in out
    row = next(line for line in out.splitlines() if "task_state" in line).split()
    assert row == ["task_state", "1", "1,500", "12.0", "s", "300", "5.0", "s", "2", "1", "behind"]
    assert "see `refold refused`" in out and "2 unknown types: see `refold events --unknown`" in out
    assert "reactor settler: no worker runs it over 8 of its partitions" in out
    assert "1 dead letter: see `refold deadletters list`" in out


def test_a_model_that_is_being_made_ready_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    one = {"model": "use-multilingual", "state": "active", "dimension": 512, "vectors": 10, "waiting": 0}
    other = {"model": "endpoint:m-7", "state": "building", "dimension": 768, "vectors": 4, "waiting": 1_206}
    print_status(document(embeddings=[one, other]))
    out = capsys.readouterr().out
    assert "endpoint:m-7 is being made ready (1,206 cards to look at)" in " ".join(out.split())
    assert "use-multilingual is being" not in out


def test_nothing_is_to_be_looked_at_where_all_is_well(capsys: pytest.CaptureFixture[str]) -> None:
    well = {"lag_events": 0, "lag_s": 0.0, "events_per_s": 0.0, "eta_s": 0.0, "dead_letters": 0, "state": "live"}
    idle = [{"name": "settler", "lag_events": 0, "lag_s": 0.0, "workers": 1, "unowned": 0}]
    print_status(document(projections=[well], has_refused=False, unknown_types=0, not_archived=0, reactors=idle))
    assert "see `" not in capsys.readouterr().out


def test_status_during_a_rebuild_shows_it_and_advises_none(capsys: pytest.CaptureFixture[str]) -> None:
    told = {"phase": "folding", "done": 1000, "total": 20_000, "eta_s": 95.0}
    rebuilding = {"state": "rebuilding", "hint": "made by other code: it is being rebuilt", "rebuild": told}
    service = {"state": "waiting", "restarts": 3, "error": "SetupError: " + "a long story " * 40}
    print_status(document(projections=[rebuilding], services={"worker 1": service}))
    out = capsys.readouterr().out
    assert "folding 1,000/20,000" in out and "it is being rebuilt" in out
    assert "refold rebuild" not in out
    row = next(line for line in out.splitlines() if "worker 1" in line)
    assert "waiting" in row and "SetupError" in row and "…" in row
    assert max(map(len, out.splitlines())) <= 100


def partitions() -> list[dict[str, Any]]:
    common = {"position": "1-7", "lag_s": 1.0, "events_per_s": 3.0, "eta_s": None, "still_s": 1.0}
    return [
        {"partition": 0, "state": "live", "lag_events": 0, "worker": "host:1/a", "reason": "", **common},
        {"partition": 1, "state": "stuck", "lag_events": 9, "worker": "host:2/b", "reason": "disk is away", **common},
    ]


def test_partitions_are_shown_with_their_workers(capsys: pytest.CaptureFixture[str]) -> None:
    print_status(document(projections=[{"partitions": partitions()}]))
    out = capsys.readouterr().out
    assert "host:1/a" in out and "stuck" in out and "disk is away" in out


def drawn(given: dict[str, Any], width: int, error: str = "") -> list[str]:
    history = History()
    for lag in (0, 500, 1000):
        history.note({"projections": [{"name": "task_state", "lag_events": lag}]})
    out = Console(width=width, record=True, file=None, force_terminal=False)
    with out.capture() as captured:
        out.print(view(given, history, width, error))
    return captured.get().splitlines()


@pytest.mark.parametrize("width", [30, 40, 64, 100, 140])
def test_the_view_fits_into_the_terminal_and_always_names_the_state(width: int) -> None:
    told = {"phase": "folding", "done": 1000, "total": 20_000, "eta_s": 95.0}
    service = {"state": "waiting", "restarts": 3, "error": "SetupError: " + "a long story " * 40}
    given = document(projections=[{"rebuild": told, "partitions": partitions()}], services={"worker 1": service})
    lines = drawn(given, width, "cannot reach it")
    assert max(map(len, lines)) <= width
    text = "\n".join(lines)
    assert "behind" in text and "1,500" in text and "trying again" in " ".join(text.split())
    assert ("events/s" in text) == (width >= 64) and ("▁▅█" in text) == (width >= 100)


def test_a_sparkline_is_bounded() -> None:
    history = History()
    for lag in range(100):
        history.note({"projections": [{"name": "x", "lag_events": lag}]})
    assert len(history.drawn("x")) == HISTORY and history.drawn("x").endswith("█")
    assert sparkline([0, 0]) == "" == History().drawn("none")
