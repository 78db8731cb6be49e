"""Watching jobs, and how a watcher leaves."""

from __future__ import annotations

from typing import Any

import pytest

from services.cli import operate
from services.cli.client import Client
from services.cli.errors import INTERRUPTED, CliError


class Instance(Client):
    """A client of an instance whose job never ends."""

    def get(self, path: str, **params: Any) -> Any:
        return {"state": "running", "events": 1500, "total": 6000, "phase": "folding", "events_per_s": 10}


def test_ctrl_c_while_a_job_runs_says_how_far_it_was_and_what_comes_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    naps = iter([None, None])

    def sleep(seconds: float) -> None:
        if next(naps, "awake") == "awake":
            raise KeyboardInterrupt

    monkeypatch.setattr(operate.time, "sleep", sleep)
    client = Instance("http://instance")
    with pytest.raises(CliError, match="interrupted after 1,500 of 6,000 events: nothing is changed") as raised:
        operate._watch(client, "/v1/verify/x", client.get("/"), "verifying", "nothing is changed")
    assert raised.value.exit_code == INTERRUPTED
    assert "\n" not in str(raised.value)


class Joined(Client):
    """A client of an instance where a rebuild without a check runs and then dies."""

    def post(self, path: str, body: Any = None, **params: Any) -> Any:
        return {"note": "a rebuild without the check was joined"}

    def get(self, path: str, **params: Any) -> Any:
        return {"projection": "x", "state": "abandoned", "error": "run `refold rebuild x`", "total": 0, "events": 0}


def test_an_abandoned_rebuild_is_not_waited_for_and_fails(capsys: pytest.CaptureFixture[str]) -> None:
    job = operate._rebuild(Joined("http://instance"), "x", True)
    assert (job["state"], job["note"]) == ("abandoned", "a rebuild without the check was joined")
    operate._print_rebuilt(job)
    assert "x abandoned: run `refold rebuild x`" in capsys.readouterr().out
    operate._print_rebuilt(job | {"state": "done", "events": 7, "seconds": 1.0, "events_per_s": 7, "generation": 2})
    assert "x is not checked: a rebuild without the check was joined" in capsys.readouterr().out


def test_status_during_a_rebuild_shows_it_and_advises_none(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    projection = {"name": "task_state", "generation": 1, "lag_events": 0, "lag_s": 0.0, "dead_letters": 1}
    told = {"phase": "folding", "done": 1000, "total": 20_000}
    rebuilding = {"state": "rebuilding", "hint": "made by other code: it is being rebuilt", "rebuild": told}
    service = {"state": "waiting", "restarts": 3, "error": "SetupError: " + "a long story " * 40}
    operate._print_status(
        {
            "url": "http://instance", "ready": True, "events": 20_000, "partitions": 8, "has_refused": False,
            "projections": [projection | rebuilding], "services": {"worker 1": service},
        }
    )  # fmt: skip
    out = capsys.readouterr().out
    assert "folding 1,000/20,000" in out and "it is being rebuilt" in out
    assert "refold rebuild" not in out
    assert "1 dead letter: see `refold deadletters list`" in out
    row = next(line for line in out.splitlines() if "worker 1" in line)
    assert "waiting" in row and "SetupError" in row and "…" in row
    assert max(map(len, out.splitlines())) <= 100
