"""The containers: what docker-compose.yml and the Dockerfile name exists, is checked, scales, and holds no secret."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import fields
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from events.log.address import node_urls
from services.roles import ROLES
from services.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = {name: service for name, service in SERVICES.items() if service.get("image") == "refold"}


def test_there_is_one_service_for_each_role() -> None:
    commands = {name: service["command"] for name, service in OURS.items()}
    assert commands == {role: ["worker", "--role", role] for role in ROLES}


def test_every_service_is_watched_and_comes_back() -> None:
    for name, service in SERVICES.items():
        assert service["healthcheck"]["test"][0] in ("CMD", "CMD-SHELL"), name
        assert service["restart"] == "unless-stopped", name


def test_ours_wait_for_their_stores() -> None:
    for service in OURS.values():
        assert service["depends_on"] == {name: {"condition": "service_healthy"} for name in ("redis", "postgres")}


def test_the_stores_keep_their_data() -> None:
    mounted = {volume.partition(":")[0] for service in SERVICES.values() for volume in service.get("volumes", [])}
    assert mounted == set(COMPOSE["volumes"])
    assert "--appendfsync always" in SERVICES["redis"]["command"]


@pytest.mark.parametrize("name", sorted(set(OURS) - {"api"}))
def test_consumers_can_be_scaled(name: str) -> None:
    """``--scale projector=4``: a fixed name or port would allow one container only."""
    assert not {"container_name", "ports", "hostname"} & OURS[name].keys()


def test_settings_are_known_and_secrets_come_from_outside() -> None:
    known = {field.metadata["variable"] for field in fields(Settings)}
    for name, service in SERVICES.items():
        for variable, value in service["environment"].items():
            assert name not in OURS or variable in known, variable
            if re.search("PASSWORD|AUTH|URL", variable):
                assert re.search(r"\$\{\w+:\?", value), f"{name} must take {variable} from the environment"


def test_the_api_is_not_open_to_the_network_by_default() -> None:
    assert [port for service in SERVICES.values() for port in service.get("ports", [])] == [
        "127.0.0.1:${REFOLD_PORT:-8321}:8321"
    ]


def test_the_image_copies_what_exists() -> None:
    lines = re.findall(r"^COPY (.+) \S+$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    names = [name for line in lines for name in line.split()]
    assert {"events", "projections", "services", "migrations"} <= set(names)
    assert [name for name in names if not (ROOT / name).exists()] == []


def test_other_extras_are_installed_though_the_set_up_was_done(tmp_path: Path) -> None:
    (tmp_path / "sdk" / "python").mkdir(parents=True)
    (tmp_path / ".venv").mkdir()
    for name in ("Makefile", "pyproject.toml", "constraints.txt", "sdk/python/pyproject.toml"):
        (tmp_path / name).write_text((ROOT / name).read_text())
    (tmp_path / ".venv" / ".installed").touch()

    # the tests may themselves be run by a `make` that was given variables
    environ = {name: text for name, text in os.environ.items() if not name.startswith(("MAKE", "MFLAGS", "EXTRAS"))}

    def would_run(*arguments: str) -> str:
        command = ["make", "--dry-run", "setup", *arguments]
        return subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=True).stdout

    assert "pip install" not in would_run()
    assert "'.[embeddings]'" in would_run("EXTRAS=[embeddings]")
    (tmp_path / ".venv" / ".installed-embeddings").touch()
    assert "pip install" not in would_run("EXTRAS=[embeddings]")


# --- on a Redis Cluster ----------------------------------------------------------------------------------------------

CLUSTER: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.cluster.yml").read_text())
NODES = {name: service for name, service in CLUSTER["services"].items() if "ipv4_address" in str(service)}


def test_each_node_of_the_cluster_keeps_its_data_and_its_address() -> None:
    assert set(NODES) == {"redis", *(f"redis-{number}" for number in range(2, 7))}
    places = {name: service["networks"]["default"]["ipv4_address"] for name, service in NODES.items()}
    assert len(set(places.values())) == len(NODES)
    commands = {" ".join(service["command"].split()) for service in NODES.values()}
    [command] = commands
    for option in ("--cluster-enabled yes", "--appendfsync always", "--maxmemory-policy noeviction", "--masterauth"):
        assert option in command
    volumes = [volume for name, service in NODES.items() if name != "redis" for volume in service["volumes"]]
    assert {volume.partition(":")[0] for volume in volumes} == set(CLUSTER["volumes"])
    maker = CLUSTER["services"]["redis-cluster"]
    assert all(f"{place}:6379" in maker["command"] for place in places.values())
    assert set(maker["depends_on"]) == set(NODES)


def test_everything_of_ours_waits_for_the_cluster_and_is_told_of_several_nodes() -> None:
    for name in ROLES:
        service = CLUSTER["services"][name]
        assert service["depends_on"] == {"redis-cluster": {"condition": "service_completed_successfully"}}
        url = re.sub(r"\$\{.*?\}", "secret", service["environment"]["REDIS_URL"])
        hosts = [urlsplit(one).hostname for one in node_urls(Settings.read({"REDIS_URL": url}).redis_url)]
        assert len(hosts) > 1 and set(hosts) <= set(NODES)


def test_the_clusters_passwords_come_from_outside() -> None:
    for service in CLUSTER["services"].values():
        for variable, value in service.get("environment", {}).items():
            assert re.search(r"\$\{\w+:\?", value), variable
