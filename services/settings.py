"""Every setting, in one frozen object: built once in the composition root, passed down, read nowhere else.

A setting comes from an argument of the command line, else from its environment variable, else from its default.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from events.errors import SetupError
from events.log.address import node_urls
from projections.task.notes import VERIFY_AGAIN
from services.schedule import Schedule

_TRUE, _FALSE = {"1", "true", "yes", "on"}, {"0", "false", "no", "off"}


def _whole(least: int, most: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        number = int(text) if re.fullmatch(r"-?\d{1,12}", text) else None
        if number is None or not least <= number <= most:
            raise ValueError(f"a whole number from {least} to {most}")
        return number

    return parse


def _seconds(least: float, most: float) -> Callable[[str], float]:
    def parse(text: str) -> float:
        number = float(text) if re.fullmatch(r"\d{1,9}(\.\d{1,6})?", text) else None
        if number is None or not least <= number <= most:
            raise ValueError(f"seconds, a number from {least:g} to {most:g}")
        return number

    return parse


def _share(text: str) -> float:
    number = float(text) if re.fullmatch(r"\d(\.\d{1,4})?", text) else None
    if number is None or not 0 <= number <= 1:
        raise ValueError("a number from 0 to 1, with at most four decimals")
    return number


def _flag(text: str) -> bool:
    if text.lower() not in _TRUE | _FALSE:
        raise ValueError("1 or 0")
    return text.lower() in _TRUE


def _redis_url(text: str) -> str:
    for parts in map(urlsplit, node_urls(text)):
        if parts.scheme not in ("redis", "rediss", "unix") or not (parts.hostname or parts.scheme == "unix"):
            raise ValueError("like redis://localhost:6379/0; a cluster's nodes like redis://one:6379,two:6379/0")
        # redis-py takes a path that is no number for database 0
        if parts.scheme != "unix" and not re.fullmatch(r"/?\d*/?", parts.path):
            raise ValueError("like redis://localhost:6379/0: what follows the port is the number of a database")
    return text


def _database_url(text: str) -> str:
    if not re.match(r"(sqlite:///.+|postgresql(\+\w+)?://.+)", text):
        raise ValueError("sqlite:///FOLDER or postgresql://user@host/database")
    return text


def _http_url(text: str) -> str:
    if not re.match(r"https?://[^/\s]+", text):
        raise ValueError("like http://localhost:8000/v1")
    return text


def _file(text: str) -> str:
    return str(Path(text).absolute())  # whoever is started elsewhere must find it, too


def _file_or_json(text: str) -> str:
    return text if text.lstrip().startswith("{") else _file(text)


def _dotted(text: str) -> str:
    if not re.fullmatch(r"[\w.]+:\w+", text):
        raise ValueError("like package.module:NAME")
    return text


def _one_of(*choices: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in choices:
            raise ValueError(f"one of {', '.join(choices)}")
        return text

    return parse


def _schedule(text: str) -> str:
    Schedule.parse(text)
    return text


def _level(text: str) -> str:
    if text.upper() not in ("DEBUG", "INFO", "WARNING", "ERROR"):
        raise ValueError("debug, info, warning or error")
    return text.upper()


def _setting(variable: str, default: Any, parse: Callable[[str], Any], option: str = "") -> Any:
    return field(default=default, metadata={"variable": variable, "parse": parse, "option": option})


NEW_LOG_PARTITIONS = 8
"""Partitions of a new log where nothing says how many."""

_PREFIX = "REFOLD_"
_OF_CLIENTS = ("REFOLD_URL", "REFOLD_ORG", "REFOLD_SPOOL")
"""What the command line's clients and the SDK read."""
_SECRETS = ("REFOLD_EMBEDDING_KEY", "REFOLD_MODEL_KEY")
"""What is read where it is used, so that no setting ever holds it."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How this process runs. Build it with ``Settings.read``."""

    data: Path = _setting("REFOLD_DATA", Path(".refold"), Path, "--data")
    """Folder of everything that is kept on this machine."""
    database_url: str = _setting("REFOLD_DATABASE_URL", "", _database_url)
    """Where the archive and the read models are; empty: SQLite files under ``data``."""
    redis_url: str = _setting("REDIS_URL", "", _redis_url)
    """Where the log is: a Redis, or any nodes of a Redis Cluster; empty: a Redis of our own under ``data``."""
    partitions: int = _setting("REFOLD_PARTITIONS", 0, _whole(1, 1024))
    """Partitions of the log, fixed once it exists; 0: those that it has, or 8 for a new one."""
    projections: str = _setting("REFOLD_PROJECTIONS", "projections.registry:PROJECTIONS", _dotted)
    """The registry of projections to run, a mapping by name, as ``module:NAME``."""
    card_templates: str = _setting("REFOLD_CARD_TEMPLATES", "", _file)
    """File of templates, YAML or JSON: how results of tools read as cards, what they are about, how long they hold."""
    belief_rules: str = _setting("REFOLD_BELIEF_RULES", "", _file_or_json)
    """Rules of beliefs (thresholds, half-lives) that differ from the defaults: a JSON or TOML file, or JSON itself."""
    http_host: str = _setting("REFOLD_HTTP_HOST", "127.0.0.1", str, "--host")
    """Address that HTTP is served at."""
    http_port: int = _setting("REFOLD_HTTP_PORT", 8321, _whole(0, 65535), "--http")
    """Port that HTTP is served at; 0: any free one, named in the ready line and in ``instance.json``."""
    workers: int = _setting("REFOLD_WORKERS", 0, _whole(0, 256), "--workers")
    """Projector processes beside the main one."""
    metrics_port: int = _setting("REFOLD_METRICS_PORT", 0, _whole(0, 65535), "--metrics-port")
    """Port that a worker serves its own metrics at; 0: none. The workers of `refold up` take the ports after it."""
    lease_s: float = _setting("REFOLD_LEASE_S", 10.0, _seconds(0.5, 3600))
    """How long an owner of a partition may be silent before another takes over."""
    stuck_s: float = _setting("REFOLD_STUCK_S", 30.0, _seconds(1, 86_400))
    """How long a partition that has work may stand still before it is shown as stuck."""
    hot_window: int = _setting("REFOLD_HOT_WINDOW", 10_000, _whole(0, 100_000_000))
    """Archived entries a partition keeps in Redis."""
    archive_batch: int = _setting("REFOLD_ARCHIVE_BATCH", 2_000, _whole(1, 100_000))
    """Entries the archiver writes in one transaction, at most."""
    fold_batch: int = _setting("REFOLD_FOLD_BATCH", 2_000, _whole(1, 100_000))
    """Events a projector folds in one transaction, at most."""
    inbox_batch: int = _setting("REFOLD_INBOX_BATCH", 500, _whole(1, 10_000))
    """Inbox entries taken through the door at once, at most."""
    inbox_idle_s: float = _setting("REFOLD_INBOX_IDLE_S", 30.0, _seconds(0.1, 3600))
    """How long an inbox entry may lie with a silent consumer before another takes it over."""
    max_event_bytes: int = _setting("REFOLD_MAX_EVENT_BYTES", 1 << 20, _whole(1_024, 64 << 20))
    """Largest ``data`` of one event that the door lets in."""
    max_batch: int = _setting("REFOLD_MAX_BATCH", 10_000, _whole(1, 1_000_000))
    """Events in one HTTP request, at most."""
    publish_timeout_s: float = _setting("REFOLD_PUBLISH_TIMEOUT_S", 10.0, _seconds(0.1, 600))
    """How long a durable publish waits for the archive."""
    read_timeout_s: float = _setting("REFOLD_READ_TIMEOUT_S", 5.0, _seconds(0, 600))
    """How long a read with ``after=`` waits for its projection."""
    store_timeout_s: float = _setting("REFOLD_STORE_TIMEOUT_S", 15.0, _seconds(0.1, 600))
    """How long a read waits for a store that does not answer, beside the wait for its projection; then it is a 503."""
    reactor_concurrency: int = _setting("REFOLD_REACTOR_CONCURRENCY", 32, _whole(1, 1_024))
    """Reactions in flight at once, a reactor: twice what an endpoint is asked at once, so that the next are ready."""
    settle_deadline_s: float = _setting("REFOLD_SETTLE_DEADLINE_S", 60.0, _seconds(0, 86_400))
    """How long a run that settles itself may take after its end, when it names no deadline of its own."""
    settle_patience_s: float = _setting("REFOLD_SETTLE_PATIENCE_S", 600.0, _seconds(0, 86_400))
    """How long after a run's end a model that cannot be asked is waited for; then its evidence is all that is kept."""
    model_routes: str = _setting("REFOLD_MODEL_ROUTES", "", str)
    """File of model routes, YAML or JSON: where each model is, what it takes, what an org may spend."""
    model_url: str = _setting("REFOLD_MODEL_URL", "", _http_url)
    """An OpenAI-compatible endpoint for every model without a route of its own; its key is in `REFOLD_MODEL_KEY`."""
    summary_model: str = _setting("REFOLD_SUMMARY_MODEL", "", str)
    """The model that summarises cards whose original is too long for a summary by rules; empty: none does."""
    extract_model: str = _setting("REFOLD_EXTRACT_MODEL", "", str)
    """The model that reads what users say for what is worth remembering; empty: rules do."""
    calibrate: str = _setting("REFOLD_CALIBRATE", "sunday 03:00", _schedule)
    """When beliefs are looked at again: like ``sunday 03:00 Europe/Berlin`` or ``daily 03:00`` (in UTC), or ``off``."""
    calibrate_model: str = _setting("REFOLD_CALIBRATE_MODEL", "", str)
    """The model that looks at beliefs again; empty: their evidence decides alone."""
    watchdog_s: float = _setting("REFOLD_WATCHDOG_S", 900.0, _seconds(1, 30 * 86_400))
    """How long a run may be silent before it counts as lost."""
    embedding_model: str = _setting("REFOLD_EMBEDDING_MODEL", "use-multilingual", str)
    """What embeds: `use-multilingual`, a folder of a sentence-transformers model, a model of the hub, or `none`."""
    embedding_form: str = _setting("REFOLD_EMBEDDING_FORM", "auto", _one_of("auto", "light", "framework"))
    """How the default model runs: without torch, within sentence-transformers, or within that where it is installed."""
    embedding_url: str = _setting("REFOLD_EMBEDDING_URL", "", _http_url)
    """An OpenAI-compatible endpoint that serves the embedding model; its key is in `REFOLD_EMBEDDING_KEY`."""
    rerank_model: str = _setting("REFOLD_RERANK_MODEL", "", str)
    """A cross-encoder of sentence-transformers (a folder, a model of the hub) that judges what a search found first."""
    search_memory_mb: int = _setting("REFOLD_SEARCH_MEMORY_MB", 1_024, _whole(1, 1 << 20))
    """Memory for the cards that searches keep at hand, MiB; what was searched longest ago gives way."""
    search_max_cards: int = _setting("REFOLD_SEARCH_MAX_CARDS", 200_000, _whole(1, 100_000_000))
    """Cards that one search looks at; a larger scope is refused. A card takes about 5 KiB of memory."""
    start_wait_s: float = _setting("REFOLD_START_WAIT_S", 30.0, _seconds(0, 3600))
    """How long a starting worker waits for a Redis or a database that does not answer yet."""
    rebuild_stale: bool = _setting("REFOLD_REBUILD_STALE", True, _flag)
    """Whether `refold up` begins to rebuild what other code made; else it is read as it is until it is rebuilt."""
    worker_rebuilds: bool = _setting("REFOLD_WORKER_REBUILDS", False, _flag)
    """Whether `refold worker` begins to rebuild what former code made: once for each change of the code."""
    pack_confidence: float = _setting("REFOLD_PACK_CONFIDENCE", 0.8, _share)
    """What confidences of an imported memory pack are multiplied with: what held elsewhere need not hold here."""
    verify_notes: str = _setting("REFOLD_VERIFY_NOTES", ",".join(sorted(VERIFY_AGAIN)), str)
    """Categories of notes, with commas between, that whoever reads one is told to verify again; ``-``: none."""
    stop_timeout_s: float = _setting("REFOLD_STOP_TIMEOUT_S", 10.0, _seconds(0.1, 600))
    """How long a service may take to stop before it is cancelled."""
    uvloop: bool = _setting("REFOLD_UVLOOP", True, _flag)
    """Use uvloop where it is installed."""
    log_level: str = _setting("REFOLD_LOG_LEVEL", "INFO", _level, "--log-level")
    """What is logged: ``debug``, ``info``, ``warning`` or ``error``, and what is worse."""

    @classmethod
    def read(cls, environ: Mapping[str, str], **given: Any) -> Settings:
        """Settings from the environment; a ``given`` value that is not None wins. Raises SetupError in one line."""
        values: dict[str, Any] = {}
        for spec in fields(cls):
            variable, text = spec.metadata["variable"], environ.get(spec.metadata["variable"], "").strip()
            named, source = given.pop(spec.name, None), variable
            if named is not None:
                text, source = str(named), spec.metadata["option"] or spec.name
            if text:
                values[spec.name] = _parsed(spec.metadata["parse"], text, source)
        if given:
            raise TypeError(f"no such setting: {', '.join(sorted(given))}")
        return cls(**values)

    def environ(self) -> dict[str, str]:
        """The environment variables that give a child process these settings."""
        pairs = ((spec, getattr(self, spec.name)) for spec in fields(self))
        return {
            spec.metadata["variable"]: str(int(value) if isinstance(value, bool) else value)
            for spec, value in pairs
            if value != spec.default
        }

    @property
    def categories_to_verify(self) -> frozenset[str]:
        """The categories of notes that are to be verified again."""
        return frozenset(name.strip() for name in self.verify_notes.split(","))

    @property
    def stores_url(self) -> str:
        """The database URL in force."""
        return self.database_url or f"sqlite:///{self.data.resolve() / 'db'}"


def unknown_variables(environ: Mapping[str, str]) -> list[str]:
    """What each ``REFOLD_...`` variable is called that no part of Refold reads, with the one that may be meant."""
    known = {*(spec.metadata["variable"] for spec in fields(Settings)), *_OF_CLIENTS, *_SECRETS}
    ours = {name.removeprefix(_PREFIX) for name in known if name.startswith(_PREFIX)}
    unknown = sorted(name for name in environ if name.startswith(_PREFIX) and name not in known)
    near = {name: get_close_matches(name.removeprefix(_PREFIX), ours, 1) for name in unknown}
    return [name + "".join(f" (is it {_PREFIX}{meant}?)" for meant in near[name]) for name in unknown]


def _parsed(parse: Callable[[str], Any], text: str, source: str) -> Any:
    try:
        return parse(text)
    except ValueError as error:
        shown = re.sub(r"//[^/@]*@", "//***@", text)[:80]
        raise SetupError(f"{source} is {shown!r}: it must be {error}") from error
