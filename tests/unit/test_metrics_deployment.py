"""What Prometheus and Grafana are set up with names metrics, services and files that there are."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import yaml

from events.archive.unknown_types import UnknownType
from events.event import Position
from events.log.backlog import Backlog
from projections.engine.reports import Holding
from projections.status import partition_status, projection_status
from services.api.metrics import families
from services.metrics import Meters
from services.overview import LogState, Overview, Stored
from services.reactors.status import ReactorStatus
from services.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "deploy" / "metrics"
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.metrics.yml").read_text())
MAIN: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
QUERIES = [FOLDER / "alerts.yml", FOLDER / "dashboard.json", ROOT / "docs" / "guides" / "scale.md"]


def names() -> set[str]:
    """Every sample that can be scraped, its labels left out."""
    held = Holding("host:1/a", 1.0, 5.0, "")
    partition = partition_status(0, Position(1, 5), 7, 3.0, held, "")
    projection = projection_status(
        "cards", 1, "rebuilding", [partition], dead_letters=1, parked_keys=1, reason="", progress={"total": 2}
    )
    unknown = [UnknownType("a.b", 1, 0, 0)]
    stored = Stored(1, {0: Position(1, 0)}, 1, unknown, 1, [ReactorStatus("settler", 1, 1.0, 1, 0)])
    overview = Overview(stored, LogState({0: Backlog(1, 1, 0)}, 1), [projection], {"": 2, "timeout": 1})
    meters = Meters()
    meters.folded("cards", 1, 1, 0.1)
    meters.fenced("cards")
    meters.not_published(1, "http")
    found = {sample.name for family in families(overview) for sample in family.samples}
    of_process = {family.name for family in meters.registry.collect()}
    return found | {f"{name}{end}" for name in of_process for end in ("_total", "_bucket", "_count", "_sum")}


@pytest.mark.parametrize("page", QUERIES, ids=lambda page: str(page.name))
def test_every_metric_that_is_asked_for_is_there(page: Path) -> None:
    asked = set(re.findall(r"\brefold_[a-z_]+\b(?!\.)", page.read_text()))
    assert len(asked) >= 5
    assert asked - names() == set()


def test_the_dashboard_is_whole() -> None:
    dashboard = json.loads((FOLDER / "dashboard.json").read_text())
    source = yaml.safe_load((FOLDER / "datasources.yml").read_text())["datasources"][0]["uid"]
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"]) >= 10
    assert {panel["datasource"]["uid"] for panel in dashboard["panels"]} == {source}
    assert all(panel["targets"] for panel in dashboard["panels"])


def test_what_is_mounted_is_there_and_all_of_it_is_mounted() -> None:
    files = {config["file"] for config in COMPOSE["configs"].values()}
    assert {ROOT / file for file in files} == set(FOLDER.iterdir())
    used = {one["source"] for service in COMPOSE["services"].values() for one in service.get("configs", [])}
    assert used == set(COMPOSE["configs"])


def test_every_worker_is_measured_where_prometheus_looks() -> None:
    jobs = {job["job_name"]: job for job in yaml.safe_load((FOLDER / "prometheus.yml").read_text())["scrape_configs"]}
    (workers,) = jobs["workers"]["dns_sd_configs"]
    ours = {name for name, service in MAIN["services"].items() if service.get("image") == "refold"}
    assert set(workers["names"]) == ours - {"api"}
    known = {field.metadata["variable"] for field in fields(Settings)}
    for name in workers["names"]:
        environ = COMPOSE["services"][name]["environment"]
        assert set(environ) <= known and environ["REFOLD_METRICS_PORT"] == str(workers["port"])
    assert jobs["api"]["static_configs"][0]["targets"] == [
        f"api:{MAIN['services']['api']['environment']['REFOLD_HTTP_PORT']}"
    ]


def test_only_this_machine_reaches_them_and_they_come_back() -> None:
    for name in ("prometheus", "grafana"):
        service = COMPOSE["services"][name]
        assert all(port.startswith("127.0.0.1:") for port in service["ports"])
        assert service["restart"] == "unless-stopped" and service["healthcheck"]["test"][0] == "CMD"
        assert not re.search(r"(?i)password", str(service))
