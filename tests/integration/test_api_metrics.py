"""What Prometheus reads, and the same for people: lag by partition, unknown types, reactors; no tenant's name in it."""

from __future__ import annotations

import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from events.archive.unknown_types import UnknownType
from events.event import Position
from projections.engine.reports import Holding
from projections.registry import PROJECTIONS
from projections.status import partition_status, projection_status
from services.api.metrics import OTHERS, families
from services.overview import PATIENCE_S, Overview, Stored
from services.reactors.registry import REACTORS
from tests.instance import REFOLD, ROOT, Instance, environment, running_instance, until
from tests.servers import own_postgres, redis_server

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    with running_instance(tmp_path_factory.mktemp("metrics") / "data") as instance:
        yield instance


def samples(text: str) -> Samples:
    found = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    return {(sample.name, tuple(sorted(sample.labels.items()))): sample.value for sample in found}


def scrape(http: httpx.Client) -> Samples:
    answer = http.get("/metrics")
    assert answer.status_code == 200 and answer.headers["content-type"].startswith("text/plain")
    return samples(answer.text)


def value(of: Samples, name: str, **labels: str) -> float:
    return of[(name, tuple(sorted(labels.items())))]


def test_what_is_published_and_folded_is_counted(instance: Instance) -> None:
    before = scrape(instance.http)
    run = instance.name()
    event = instance.event(run)
    refused = instance.event(run, time="yesterday")
    instance.publish(event, event, refused, instance.event(run))
    until(lambda: all(one["lag_events"] == 0 for one in instance.http.get("/v1/projections").json()["items"]))
    after = scrape(instance.http)

    def grown(name: str, **labels: str) -> float:
        key = (name, tuple(sorted(labels.items())))
        return after[key] - before.get(key, 0.0)

    assert grown("refold_published_events_total", outcome="stored", source="http") == 2
    assert grown("refold_published_events_total", outcome="refused", source="http") == 1
    assert grown("refold_published_events_total", outcome="duplicate", source="http") == 1
    assert grown("refold_publish_seconds_count", ack="durable") == 1
    assert grown("refold_refused_events_total") == 1
    assert grown("refold_archived_events_total") >= 2
    assert grown("refold_folded_events_total", projection="task_state") >= 2
    assert after[("refold_store_up", ())] == after[("refold_redis_up", ())] == 1.0
    assert value(after, "refold_projection_partitions", projection="beliefs", state="unowned") == 0
    assert value(after, "refold_projection_workers", projection="beliefs") == 1
    lags = [lag for (name, _), lag in after.items() if name in ("refold_projection_lag_events", "refold_log_entries")]
    assert len(lags) == (len(PROJECTIONS) + 1) * 8
    assert after[("refold_redis_memory_bytes", ())] > 100_000


def test_unknown_types_are_counted_where_people_and_programs_look(instance: Instance) -> None:
    """C12: counted by type; each organisation sees its own."""
    run, secret = instance.name(), instance.name("secret-org")
    instance.stored(instance.event(run, "step.rated", {}), instance.event(run, "step.rated", {}))
    kept = instance.publish(instance.event(run, "audit.kept", {}), headers={"X-Refold-Org": secret})
    assert kept.status_code == 200
    of_metrics = scrape(instance.http)
    assert value(of_metrics, "refold_unknown_type_events_total", type="step.rated") == 2
    assert value(of_metrics, "refold_unknown_type_events_total", type=OTHERS) == 0
    (listed,) = instance.http.get("/v1/log/unknown-types").json()["items"]
    assert (listed["type"], listed["events"]) == ("step.rated", 2)
    assert "step.rated" in instance.refold("events", "--unknown").stdout.decode()
    assert "1 unknown type: see `refold events --unknown`" in instance.refold("status").stdout.decode()
    mine = instance.http.get("/v1/log/unknown-types", headers={"X-Refold-Org": secret}).json()["items"]
    assert [one["type"] for one in mine] == ["audit.kept"]
    assert secret not in instance.http.get("/metrics").text


def test_partitions_tell_who_folds_them(instance: Instance) -> None:
    (first, *_) = instance.http.get("/v1/projections", params={"detail": True}).json()["items"]
    assert [each["partition"] for each in first["partitions"]] == list(range(8))
    assert {each["state"] for each in first["partitions"]} == {"live"}
    assert len({each["worker"] for each in first["partitions"]}) == 1
    assert "partitions" not in instance.http.get("/v1/projections").json()["items"][0]
    reactors = instance.http.get("/v1/reactors").json()["items"]
    assert {one["name"] for one in reactors} == {one.name for one in REACTORS} and reactors[0]["unowned"] == 0
    assert instance.refold("status", "--partitions").stdout.decode().count(first["partitions"][0]["worker"]) >= 8


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_a_worker_serves_its_own_metrics(instance: Instance, tmp_path: Path) -> None:
    port = free_port()
    with (tmp_path / "worker.log").open("wb") as log:
        worker = subprocess.Popen(
            [*REFOLD, "worker", "--role", "projector", "--data", str(instance.data), "--metrics-port", str(port)],
            env=environment(**instance.stores), cwd=ROOT, stdout=log, stderr=log,
        )  # fmt: skip
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False) as http:

            def folded() -> bool:
                instance.stored(*(instance.event(instance.name()) for _ in range(8)))
                try:
                    found = scrape(http)
                except httpx.TransportError:
                    return False
                return found.get(("refold_folded_events_total", (("projection", "task_state"),)), 0.0) > 0

            until(folded, 60)
            assert "refold_projection_lag_events" not in http.get("/metrics").text, "the API tells that once for all"
        taken = instance.refold("worker", "--metrics-port", str(port))
        assert taken.returncode == 2 and b"is taken" in taken.stderr
    finally:
        worker.terminate()
        assert worker.wait(60) == 0, (tmp_path / "worker.log").read_text()


def test_metrics_are_there_while_the_stores_are_not() -> None:
    down = {metric.name: metric.samples for metric in families(Overview(None, None, None))}
    assert [sample.value for sample in down["refold_store_up"]] == [0.0]
    assert [sample.value for sample in down["refold_redis_up"]] == [0.0]


def test_a_redis_that_hangs_is_told_before_who_asks_gives_up(tmp_path: Path) -> None:
    """It accepts connections and answers nothing: Prometheus waits 10 s, and sees no alarm when that is too short."""
    redis = redis_server(tmp_path / "redis")
    try:
        with running_instance(tmp_path / "data", REDIS_URL=redis.url) as up:
            redis.process.send_signal(signal.SIGSTOP)
            try:
                began = time.monotonic()
                told = scrape(up.http)
                ready = up.http.get("/readyz")
                took_s = time.monotonic() - began
            finally:
                redis.process.send_signal(signal.SIGCONT)
            assert (value(told, "refold_redis_up"), value(told, "refold_store_up")) == (0.0, 1.0)
            assert ready.status_code == 503 and "no answer within" in ready.json()["checks"]["redis"]
            assert took_s < 5 * PATIENCE_S, "both together"
            until(lambda: up.http.get("/readyz").status_code == 200, 60)
    finally:
        redis.stop()


def test_a_redis_is_not_called_away_because_the_store_is(tmp_path: Path) -> None:
    with own_postgres() as store, running_instance(tmp_path / "data", REFOLD_DATABASE_URL=store.new_database()) as up:
        store.kill()
        told = scrape(up.http)
        assert (value(told, "refold_store_up"), value(told, "refold_redis_up")) == (0.0, 1.0)
        assert value(told, "refold_redis_memory_bytes") > 0
        store.start()
        until(lambda: value(scrape(up.http), "refold_store_up") == 1.0, 60)


def test_types_that_publishers_choose_make_one_sample_a_label() -> None:
    """Alike for longer than a label holds, or called as the rest is: two samples of one label spoil a scrape."""
    chosen = [("x." + "a" * 80 + "1", 5), ("x." + "a" * 80 + "2", 3), (OTHERS, 2), ('quo"te\n', 1)]
    unknown = [UnknownType(type_, events, 0, 0) for type_, events in chosen]
    overview = Overview(Stored(20, {}, 0, unknown, 20, []), None, None)
    (family,) = (metric for metric in families(overview) if metric.name == "refold_unknown_type_events")
    told = [(sample.labels["type"], sample.value) for sample in family.samples]
    assert sorted(told) == sorted([("x." + "a" * 62, 8.0), (OTHERS, 11.0), ('quo"te\n', 1.0)])


def test_a_rebuild_and_a_stuck_partition_show() -> None:
    held = Holding("host:1/a", 99.0, 0.0, "boom")
    parts = [
        partition_status(0, Position(1, 5), 7, 99.0, held, ""),
        partition_status(1, Position(1, 9), 0, 0.0, None, ""),
    ]
    status = projection_status(
        "cards", 3, "rebuilding", parts, dead_letters=2, parked_keys=1, reason="", progress={"done": 5, "total": 20}
    )
    metrics = {metric.name: metric.samples for metric in families(Overview(None, None, [status]))}

    def told(name: str, **labels: Any) -> list[float]:
        return [sample.value for sample in metrics[name] if labels.items() <= sample.labels.items()]

    assert told("refold_rebuild_progress_ratio") == [0.25]
    assert told("refold_projection_state", state="rebuilding") == [1.0]
    assert sum(told("refold_projection_state")) == 1.0
    assert told("refold_projection_partitions", state="stuck") == [1.0]
    assert told("refold_projection_partitions", state="unowned") == [1.0]
    assert told("refold_dead_letters") == [2.0] and told("refold_projection_lag_seconds", partition="0") == [99.0]


def test_every_name_follows_the_conventions(instance: Instance) -> None:
    for family in text_string_to_metric_families(instance.http.get("/metrics").text):
        assert family.name.startswith("refold_") and family.documentation
        assert family.type in ("counter", "gauge", "histogram")
        assert not {"org", "user", "agent", "task", "run", "session"} & {
            label for sample in family.samples for label in sample.labels
        }
