"""Rebuilding from the command line: watching jobs, leaving them, options that go together, what is shown."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from projections.rebuilding.diff import Diff, FieldDiff, Retyped, RowDiff, TableDiff
from services.cli import rebuild, watching
from services.cli.client import Client
from services.cli.errors import INTERRUPTED, USAGE, CliError
from tests.instance import ROOT


class Instance(Client):
    """A client of an instance whose jobs never end; ``deleted`` are the paths that it was asked to remove."""

    def __init__(self) -> None:
        super().__init__("http://instance")
        self.deleted: list[str] = []

    def get(self, path: str, **params: Any) -> Any:
        return {"state": "running", "events": 1500, "total": 6000, "phase": "folding", "events_per_s": 10}

    def request(self, method: str, path: str, **options: Any) -> Any:
        assert method == "DELETE"
        self.deleted.append(path)


@pytest.fixture
def interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody presses Ctrl-C after three looks."""
    naps = iter([None, None])

    def sleep(seconds: float) -> None:
        if next(naps, "awake") == "awake":
            raise KeyboardInterrupt

    monkeypatch.setattr(watching.time, "sleep", sleep)


@pytest.mark.usefixtures("interrupted")
def test_ctrl_c_says_how_far_it_was_and_that_the_instance_goes_on() -> None:
    client = Instance()
    with pytest.raises(CliError, match="interrupted after 3,000 of 12,000 events: it goes on") as raised:
        watching.watch(client, {"a": "/a", "b": "/b"}, str, lambda: "it goes on")
    assert raised.value.exit_code == INTERRUPTED
    assert "\n" not in str(raised.value)
    assert client.deleted == []


@pytest.mark.usefixtures("interrupted")
def test_ctrl_c_cancels_what_nobody_else_waits_for() -> None:
    client = Instance()
    with pytest.raises(CliError, match="interrupted after 1,500 of 6,000 events: it is cancelled; nothing is changed"):
        watching.watch_one(client, "/v1/verify/x", "verifying", "nothing is changed")
    assert client.deleted == ["/v1/verify/x"]


class Joined(Client):
    """A client of an instance where a rebuild without a check runs and then dies."""

    def post(self, path: str, body: Any = None, **params: Any) -> Any:
        return {"items": [{"projection": "x", "note": "a rebuild without the check was joined"}]}

    def get(self, path: str, **params: Any) -> Any:
        return {"projection": "x", "state": "abandoned", "error": "run `refold rebuild x`", "total": 0, "events": 0}


def test_an_abandoned_rebuild_is_not_waited_for_and_fails(capsys: pytest.CaptureFixture[str]) -> None:
    (job,) = rebuild.start_and_watch(Joined("http://instance"), ["x"], {})
    assert (job["state"], job["note"]) == ("abandoned", "a rebuild without the check was joined")
    rebuild.print_rebuilt(job)
    assert "x abandoned: run `refold rebuild x`" in capsys.readouterr().out
    rebuild.print_rebuilt(job | {"state": "done", "events": 7, "seconds": 1.0, "events_per_s": 7, "generation": 2})
    assert "x: a rebuild without the check was joined" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("", "name projections, or say --all"),
        ("x --all", "name projections, or say --all, not both"),
        ("x --cancel --rollback", "--cancel and --rollback are different things"),
        ("x --keep 2", "--keep means nothing with a rebuild; it goes with --drop-old"),
        ("x --dry-run --check", "--check means nothing with --dry-run; it goes with a rebuild"),
        ("x --key task/t --check", "--check means nothing where a part is repaired"),
        ("x --key task/t --cancel", "--key means nothing with --cancel; it goes with --dry-run or"),
        ("x --rollback --rate 5", "--rate means nothing with --rollback"),
        ("x --allow-dead-letters --drop-old", "--allow-dead-letters means nothing with --drop-old"),
    ],
)
def test_options_that_mean_nothing_together_are_refused(arguments: str, said: str) -> None:
    """Before anything is asked of an instance: there is none at this address."""
    app = typer.Typer()
    rebuild.register(app)
    done = CliRunner().invoke(app, [*arguments.split(), "--url", "http://127.0.0.1:1"])
    assert isinstance(done.exception, CliError)
    assert said in str(done.exception)
    assert done.exception.exit_code == USAGE


def test_a_diff_shows_the_first_rows_field_by_field(capsys: pytest.CaptureFixture[str]) -> None:
    table = TableDiff("tasks", live_rows=3, new_rows=3, changed=1, added=1, removed=1, columns_new=["owner"])
    retyped = TableDiff("calls", columns_retyped=[Retyped("n", "TEXT", "BIGINT")])
    rows = (
        RowDiff("tasks", ("default", "task/t1"), "changed", (FieldDiff("status", "open", {"long": "x" * 500}),)),
        RowDiff("tasks", ("default", "task/t2"), "added", (FieldDiff("steps", None, 1),)),
        RowDiff("tasks", ("default", "task/t3"), "removed", (FieldDiff("steps", "1", None),)),
    )
    diff = Diff((table, retyped, TableDiff("old", "gone", 4, removed=4)), rows)
    rebuild.print_diff(json.loads(json.dumps(diff.as_dict())))
    out = capsys.readouterr().out
    assert "tasks, row default / task/t1: changed" in out
    assert 'status: "open" -> {"long": "xxx' in out and "x" * 200 not in out
    assert "steps: 1\n" in out and 'steps: "1"\n' in out
    assert "new column owner" in out and "n: TEXT -> BIGINT, not compared" in out and "the table goes" in out
    assert "... 7 rows differ in all, these are the first 3" in out


def test_a_check_is_told_only_where_it_was_made(capsys: pytest.CaptureFixture[str]) -> None:
    done = {"projection": "x", "state": "done", "events": 7, "seconds": 1.0, "events_per_s": 7, "generation": 2}
    rebuild.print_rebuilt(done | {"note": ""}, checked=True)
    assert "generation 2, which equals a second refold" in capsys.readouterr().out
    for job, checked in ((done | {"note": ""}, False), (done | {"note": "a rebuild without the check"}, True)):
        rebuild.print_rebuilt(job, checked=checked)
        assert "second refold" not in capsys.readouterr().out


def test_a_part_without_rows_may_not_be_what_was_meant(capsys: pytest.CaptureFixture[str]) -> None:
    """A mistyped key has no rows, and nothing differs from nothing."""

    def told(rows: int, key: str | None) -> str:
        tables = [asdict(TableDiff("tasks", live_rows=rows, new_rows=rows))]
        result = {"name": "x", "tenant": None if key is None else "o", "key": key, "events": 9, "differs": False}
        rebuild._print_repaired(result | {"tables": tables, "first": []})
        return capsys.readouterr().out

    assert "x has no row of it" in told(0, "tsk/t1")
    assert "no row" not in told(1, "task/t1") + told(0, None)


def test_a_job_process_starts_without_what_it_has_no_use_for() -> None:
    """Each dry run, repair and rebuild is one."""
    code = "import sys, services.api.job; sys.exit('fastapi' in sys.modules or 'redis' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0
