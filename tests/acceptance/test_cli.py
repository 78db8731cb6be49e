"""The command line as its users meet it: real processes, exit codes, JSON for programs, tables for people."""

from __future__ import annotations

import json
import resource
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from services.cli.machine import Role
from services.cli.publish import Format
from services.importers.registry import FORMATS
from services.roles import ROLES
from tests.instance import REFOLD, ROOT, Instance, environment, refold, running_instance, until

IMPORTS = Path(__file__).parent.parent / "fixtures" / "imports"


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    with running_instance(tmp_path_factory.mktemp("cli") / "data") as running:
        for format in ("chat", "swe-agent", "relay"):
            done = running.refold("import", str(IMPORTS / format), "--format", format, "--wait")
            assert done.returncode == 0, done.stderr
        yield running


def document(done: subprocess.CompletedProcess[bytes], exit_code: int = 0) -> Any:
    assert done.returncode == exit_code, done.stderr
    return json.loads(done.stdout)


def lines(done: subprocess.CompletedProcess[bytes]) -> list[Any]:
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def a_run(instance: Instance, stem: str) -> str:
    found = lines(instance.refold("runs", "--json"))
    return str(next(one["run"] for one in found if one["run"].startswith(stem)))


COMMANDS = """
up demo worker doctor publish import runs events task resume cards card memories memory remember forget
settlements settle beliefs belief rows status rebuild verify generations deadletters refused restore erase erasures
"""


def test_help_is_quick_and_names_every_command() -> None:
    def spent_s() -> float:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime

    before = spent_s()
    done = subprocess.run([*REFOLD, "--help"], capture_output=True, env=environment(), cwd=ROOT, check=True)
    assert spent_s() - before < 1, "it takes 0.3 s; with all that serves and folds it took 2"
    for command in COMMANDS.split():
        assert f"  {command} " in done.stdout.decode()
    assert "..." not in done.stdout.decode().partition("Commands:")[2], "no summary is cut"


def test_version_and_choices() -> None:
    assert refold("--version").stdout.startswith(b"refold ")
    assert b"chat|swe-agent|relay" in refold("import", "--help").stdout
    assert b"archiver, inbox, projector, reactors or api" in refold("worker", "--help").stdout
    # what the command line offers is what there is
    assert [one.value for one in Format] == list(FORMATS)
    assert [one.value for one in Role] == list(ROLES)


def events_once_still(instance: Instance) -> int:
    """Events of the log, once reactors have said what they have to say."""
    counts = [-1]

    def stand_still() -> bool:
        status = document(instance.refold("status", "--json"))
        counts.append(status["events"])
        return counts[-1] == counts[-2] and not any(one["lag_events"] for one in status["reactors"])

    until(stand_still)
    return counts[-1]


def test_importing_again_changes_nothing(instance: Instance) -> None:
    before = events_once_still(instance)
    done = document(instance.refold("import", str(IMPORTS / "relay"), "--format", "relay", "--json"))
    assert done["outcomes"] == {"duplicate": done["events"]}
    assert len(done["runs"]) == 2
    assert done["skipped"][0]["reason"] == "a trace of changed lines, not a run"
    assert events_once_still(instance) == before


def test_import_stops_at_a_limit(instance: Instance) -> None:
    path = str(IMPORTS / "chat" / "many.json")
    assert len(document(instance.refold("import", path, "--format", "chat", "--limit", "1", "--json"))["runs"]) == 1


def test_import_can_say_when_runs_without_times_began(instance: Instance, tmp_path: Path) -> None:
    (tmp_path / "talk.json").write_text('[{"role": "user", "content": "what is the time?"}]')
    arguments = ["import", str(tmp_path / "talk.json"), "--format", "chat", "--json", "--start"]
    done = document(instance.refold(*arguments, "2026-03-01T10:00:00+02:00"))
    first = lines(instance.refold("events", "--run", done["runs"][0], "--json"))[0]
    assert first["time"] == "2026-03-01T08:00:00.000Z"
    # the time is no part of what an event is: the same run again is a duplicate
    assert document(instance.refold(*arguments, "now"))["outcomes"] == {"duplicate": done["events"]}
    naive = instance.refold(*arguments, "2026-03-01T10:00:00")
    assert (naive.returncode, naive.stderr.count(b"\n")) == (2, 1)


def test_import_of_what_is_no_trajectory(instance: Instance, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text('{"hello": 1}')
    assert instance.refold("import", str(tmp_path / "x.json"), "--format", "chat").returncode == 1
    for arguments in (["nowhere", "--format", "chat"], [str(tmp_path), "--format", "odd"], [str(tmp_path)]):
        assert instance.refold("import", *arguments).returncode == 2


def test_events_of_a_run(instance: Instance) -> None:
    found = lines(instance.refold("events", "--run", a_run(instance, "one-"), "--json"))
    assert [one["type"] for one in found][:3] == ["run.started", "message.added", "tool.called"]
    assert {"id", "type", "time", "data", "partition", "position", "verdict"} <= found[0].keys()
    assert len(lines(instance.refold("events", "--run", a_run(instance, "one-"), "--limit", "2", "--json"))) == 2


def test_task_resume_cards_settlements_beliefs(instance: Instance) -> None:
    run = a_run(instance, "one-")
    assert document(instance.refold("task", run, "--json"))["status"] == "interrupted"
    assert document(instance.refold("resume", run, "--json"))["next_attempt"] == 2
    cards = lines(instance.refold("cards", "--task", run, "--json"))
    assert cards[0]["value"] >= cards[-1]["value"]
    assert document(instance.refold("settlements", "--run", run, "--json"))["run"] == run
    relay = next(one for one in lines(instance.refold("runs", "--json")) if one["run"].startswith("traj_tide"))
    state = document(instance.refold("settlements", "--session", relay["session"], "--json"))
    assert "state" in state
    beliefs = lines(instance.refold("beliefs", "--agent", "assistant", "--json"))
    assert all(0 <= one["confidence"] <= 1 for one in beliefs)
    assert beliefs


def test_status_and_verify_have_the_promised_shape(instance: Instance) -> None:
    status = document(instance.refold("status", "--json"))
    assert status["events"] > 0
    for one in status["projections"]:
        assert {"name", "generation", "lag_events", "lag_s", "state"} <= one.keys()
    verified = document(instance.refold("verify", "--json"))
    assert verified["equal"] is True
    assert [sorted(one) for one in verified["projections"]] == [
        ["checksum", "equal", "first_differences", "generation", "name"]
    ] * len(status["projections"])


def test_rebuild_swaps_the_generation(instance: Instance) -> None:
    def generation() -> int:
        status = document(instance.refold("status", "--json"))
        return int(next(one["generation"] for one in status["projections"] if one["name"] == "settlements"))

    before = generation()
    done = document(instance.refold("rebuild", "settlements", "--check", "--json"))
    assert (done["state"], done["generation"]) == ("done", before + 1)
    assert generation() == before + 1
    listed = lines(instance.refold("generations", "settlements", "--json"))
    assert [one["state"] for one in listed] == ["active", "retired"]
    assert instance.refold("rebuild").returncode == 2


@pytest.mark.parametrize(
    "command",
    ["rebuild x", "verify x", "generations x", "rows x", "rows task_state x", "deadletters list --projection x"],
)
def test_an_unknown_name_is_wrong_usage_and_the_known_ones_are_listed(instance: Instance, command: str) -> None:
    done = instance.refold(*command.split())
    assert (done.returncode, done.stderr.count(b"\n")) == (2, 1)
    assert b"task_state" in done.stderr


def test_publish_json_lines_from_stdin_and_an_array_from_a_file(instance: Instance, tmp_path: Path) -> None:
    run = instance.name()
    events = [instance.event(run), instance.event(run), instance.event(run)]
    stdin = "\n".join(json.dumps(event) for event in events[:2]).encode()
    assert [one["status"] for one in lines(instance.refold("publish", "--json", stdin=stdin))] == ["stored"] * 2
    (tmp_path / "events.json").write_text(json.dumps(events, indent=2))
    again = lines(instance.refold("publish", str(tmp_path / "events.json"), "--json"))
    assert [one["status"] for one in again] == ["duplicate", "duplicate", "stored"]
    (tmp_path / "one.json").write_text(json.dumps(instance.event(run), indent=2))
    fast = lines(instance.refold("publish", str(tmp_path / "one.json"), "--ack", "fast", "--json"))
    assert [one["status"] for one in fast] == ["accepted"]


def test_publish_tells_each_bad_event_and_exits_1(instance: Instance) -> None:
    """C23, C26: bad lines are refused one by one; the good ones around them are stored."""
    run = instance.name()
    bad = ["not json at all", f'{{"id": "a", "type": "feedback.given", "run": "{run}", "data": {{"score": NaN}}}}', "7"]
    good = [json.dumps(instance.event(run)) for _ in range(3)]
    deep = '{"id": "d", "type": "x", "run": "r", "data": {"a": ' + "[" * 5000 + "]" * 5000 + "}}"
    mixed = "\n".join([good[0], bad[0], good[1], bad[1], deep, bad[2], good[2]]).encode()
    done = instance.refold("publish", "--json", stdin=mixed)
    assert done.returncode == 1
    outcomes = [json.loads(line)["status"] for line in done.stdout.splitlines()]
    assert outcomes == ["stored", "refused", "stored", "refused", "refused", "refused", "stored"]
    shown = instance.refold("publish", stdin=bad[1].encode())
    assert shown.returncode == 1
    assert b"NaN" in shown.stdout
    assert b"line 1" in shown.stdout
    assert instance.refold("publish", "/nowhere.json").returncode == 2
    assert instance.refold("publish", "--ack", "maybe").returncode == 2
    assert instance.refold("publish", stdin=b"").returncode == 0


@pytest.mark.parametrize("bad", ["not json", '{"id": "x"', '{"id": "x"}, {"id": "y"}', '["x"', "]"])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_bad_line_is_named_wherever_it_stands(instance: Instance, tmp_path: Path, bad: str, place: int) -> None:
    """C26: the same answer for the first line and a later one; the others are stored."""
    texts = [json.dumps(instance.event(instance.name())) for _ in range(2)]
    texts.insert(place, bad)
    (tmp_path / "events.jsonl").write_text("\n\n" + "\n".join(texts) + "\n")
    done = instance.refold("publish", str(tmp_path / "events.jsonl"), "--json")
    outcomes = [json.loads(line) for line in done.stdout.splitlines()]
    assert (done.returncode, len(outcomes)) == (1, 3)
    refused = outcomes.pop(place)
    assert (refused["status"], refused["code"], refused["where"]) == ("refused", "bad_json", f"line {place + 3}")
    assert [one["status"] for one in outcomes] == ["stored", "stored"]


def test_events_of_unknown_types_are_pointed_out(instance: Instance) -> None:
    events = [instance.event(instance.name(), "run.startd", {}) for _ in range(2)]
    done = instance.refold("publish", stdin="\n".join(map(json.dumps, events)).encode())
    assert (done.returncode, done.stdout.decode().splitlines()) == (
        0,
        ["2 stored", "2 events of a type this version does not know: run.startd (is it run.started?); "
         "stored and ignored by read models"],
    )  # fmt: skip


def test_a_broken_document_is_one_line_that_says_where(instance: Instance, tmp_path: Path) -> None:
    (tmp_path / "events.json").write_text('[\n  {"id": "a"},\n  {"id": }\n]')
    done = instance.refold("publish", str(tmp_path / "events.json"))
    assert (done.returncode, done.stderr.count(b"\n")) == (2, 1)
    assert b"line 3" in done.stderr


def test_ctrl_c_says_what_was_taken_and_that_again_is_harmless(instance: Instance, tmp_path: Path) -> None:
    run = instance.name()
    command = [*REFOLD, "publish", "--data", str(instance.data)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT, env=environment()
    ) as process:
        assert process.stdin is not None and process.stderr is not None
        batch = b"".join(json.dumps(instance.event(run)).encode() + b"\n" for _ in range(501))
        process.stdin.write(batch)
        process.stdin.flush()
        until(lambda: instance.http.get(f"/v1/runs/{run}").status_code == 200)
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        said = process.stderr.read().decode()
        assert process.wait(30) == 130
    assert said.count("\n") == 1
    assert "500 events were taken" in said and "not doubled" in said


def test_imported_runs_without_times_say_so(instance: Instance, tmp_path: Path) -> None:
    (tmp_path / "talk.json").write_text('[{"role": "user", "content": "when was that?"}]')
    arguments = ("import", str(tmp_path / "talk.json"), "--format", "chat")
    assert b"dated from 2024-01-01; `--start now` dates them from now" in instance.refold(*arguments).stdout
    assert b"no times" not in instance.refold(*arguments, "--start", "now").stdout
    relay = instance.refold("import", str(IMPORTS / "relay"), "--format", "relay")
    assert b"no times" not in relay.stdout


@pytest.mark.parametrize("name", ["..", ".", "a/b?c#d", "%2F", "--help", "{p}"])
def test_a_task_of_any_name_is_found(instance: Instance, name: str) -> None:
    instance.stored(instance.event(name, "step.started", {"step": "s1"}))
    assert json.loads(until(lambda: instance.refold("task", "--json", "--", name).stdout))["task"] == name
    assert lines(instance.refold("events", "--json", f"--run={name}"))[0]["run"] == name


def test_what_the_door_refused_can_be_listed(instance: Instance) -> None:
    instance.publish({"id": "naive", "type": "message.added", "run": "r", "time": "2026-03-01T10:00:00"})
    kept = lines(instance.refold("refused", "--limit", "3", "--json"))
    assert {"received", "event_id", "code", "reason", "raw"} <= kept[0].keys()


@pytest.mark.parametrize(
    "command", ["status", "verify", "runs", "events --run x", "task x", "beliefs", "deadletters list", "publish"]
)
def test_without_an_instance_one_line_says_what_to_do(command: str, tmp_path: Path) -> None:
    done = refold(*command.split(), "--data", str(tmp_path / "none"))
    assert done.returncode == 3
    said = done.stderr.decode()
    assert said.count("\n") == 1
    assert "refold up --data" in said
    assert not (tmp_path / "none").exists()


def test_an_address_that_does_not_answer(tmp_path: Path) -> None:
    done = refold("status", "--url", "http://127.0.0.1:9")
    assert (done.returncode, done.stderr.count(b"\n")) == (3, 1)
    assert refold("status", "--url", "127.0.0.1:9").returncode == 2
    assert refold("status", "--unknown").returncode == 2


def test_the_address_by_option_and_environment(instance: Instance, tmp_path: Path) -> None:
    assert refold("status", "--url", instance.url).returncode == 0
    assert refold("status", REFOLD_URL=instance.url).returncode == 0
    assert refold("status", "--data", str(instance.data)).returncode == 0
    # what the command line says wins over the environment
    assert refold("status", "--data", str(tmp_path / "none"), REFOLD_URL=instance.url).returncode == 3


def test_unknown_things_are_a_plain_no(instance: Instance) -> None:
    for command in (
        ["task", "nobody"], ["events", "--run", "nobody"], ["settlements", "--run", "nobody"],
        ["cards", "--task", "nobody"],
    ):  # fmt: skip
        done = instance.refold(*command)
        assert (done.returncode, done.stderr.count(b"\n")) == (1, 1), done.stderr
    assert instance.refold("task", "nobody").stderr == b"refold: nothing saved for task 'nobody'\n"


def test_rows_of_any_projection(instance: Instance) -> None:
    run = a_run(instance, "one-")
    tables = {one["table"]: one for one in lines(instance.refold("rows", "task_state", "--json"))}
    assert {"tasks", "runs", "steps", "calls"} <= tables.keys()
    assert tables["runs"]["order"] == ["key", "run"]
    found = lines(instance.refold("rows", "task_state", "runs", "--key", f"task/{run}", "--json"))
    assert [one["run"] for one in found] == [run]
    assert "org" not in found[0]
    names, *rows = instance.refold("rows", "task_state", "calls", "--limit", "2").stdout.decode().splitlines()
    assert len(rows) == 2
    assert all(row.count("\t") == names.count("\t") for row in rows)


def test_tables_fit_the_columns_that_are_said(instance: Instance) -> None:
    run = a_run(instance, "traj_tide")
    for command in (
        ["status"], ["runs"], ["generations"], ["verify"], ["beliefs", "--agent", "assistant"], ["task", run],
        ["resume", run], ["cards", "--task", run], ["events", "--run", run], ["settlements", "--run", run],
        ["deadletters", "list"], ["refused"], ["doctor"], ["rows", "task_state"], ["rows", "task_state", "runs"],
    ):  # fmt: skip
        done = refold(*command, REFOLD_DATA=str(instance.data), COLUMNS="100")
        assert done.returncode == 0, (command, done.stderr)
        found = done.stdout.decode().splitlines()
        # names are shown whole, so a list of refused events with long ones may be wider
        assert max(len(line) for line in found) <= (130 if command == ["refused"] else 100), command


def test_a_program_reads_whole_rows(instance: Instance) -> None:
    names, *rows = instance.refold("runs").stdout.decode().splitlines()
    assert names == "run\tattempt\tagent\tstarted\ttask\tgoal"
    runs = lines(instance.refold("runs", "--json"))
    assert [row.split("\t")[0] for row in rows] == [one["run"] for one in runs]
    assert [row.split("\t")[5] for row in rows] == [" ".join(one["goal"].split()) for one in runs]


def test_doctor_tells_what_is_there_and_what_is_wrong(tmp_path: Path) -> None:
    good = document(refold("doctor", "--data", str(tmp_path), "--json", REFOLD_HTTP_PORT="0"))
    assert good["ok"] is True
    assert {
        "versions",
        "settings",
        "data folder",
        "disk",
        "Redis",
        "SQLite",
        "store",
        "connections",
        "port",
        "promises",
        "embeddings",
    } == {one["name"] for one in good["checks"]}
    bad = document(refold("doctor", "--json", REDIS_URL="redis://127.0.0.1:9", REFOLD_HTTP_PORT="0"), exit_code=1)
    redis = next(one for one in bad["checks"] if one["name"] == "Redis")
    assert redis["state"] == "bad"
    assert "REDIS_URL" in redis["advice"]
    assert refold("doctor", REFOLD_WORKERS="many").returncode == 2
    text = refold("doctor", "--data", str(tmp_path), REFOLD_HTTP_PORT="0", REFOLD_LEASE="3").stdout.decode()
    assert "REFOLD_LEASE (is it REFOLD_LEASE_S?)" in text
    assert "a new one gets 8" in text
    assert "a new one gets 3" in refold("doctor", "--data", str(tmp_path), REFOLD_PARTITIONS="3").stdout.decode()


def test_a_wrong_option_is_named_as_it_is_written(tmp_path: Path) -> None:
    done = refold("up", "--http", "99999", "--data", str(tmp_path))
    assert (done.returncode, done.stderr.count(b"\n")) == (2, 1)
    assert b"--http is '99999'" in done.stderr


def test_a_mistyped_setting_is_warned_of(tmp_path: Path) -> None:
    done = refold("worker", "--data", str(tmp_path), REFOLD_PARTITION="3")
    assert b"warning: REFOLD_PARTITION (is it REFOLD_PARTITIONS?) is set, but no setting" in done.stderr
