"""``/metrics``: this process's own, and what the stores tell of all processes together, in Prometheus' text format."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias, get_args

from fastapi import APIRouter, FastAPI, Response
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from events.types.settlement import DegradedReason
from projections.status import ProjectionStatus, State
from services.api.deps import BackendDep
from services.metrics import Meters
from services.overview import TYPES, LogState, Overview, Stored, survey

router = APIRouter(tags=["health"])

Families: TypeAlias = Iterator[Metric]
LONGEST_TYPE = 64
OTHERS = "(others)"


@router.get("/metrics", response_class=Response)
async def metrics(backend: BackendDep) -> Response:
    """Metrics for Prometheus. They are there even while a store is not: `refold_store_up`, `refold_redis_up`."""
    overview = await survey(backend)
    registry = CollectorRegistry()
    registry.register(_Once(families(overview)))
    return _text(backend.meters.registry, registry)


def metrics_app(meters: Meters) -> FastAPI:
    """What a worker serves: its own metrics, without those of the stores, which the API tells once for all."""
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)

    @app.get("/metrics", response_class=Response)
    async def own() -> Response:
        return _text(meters.registry)

    return app


def _text(*registries: CollectorRegistry) -> Response:
    return Response(b"".join(generate_latest(registry) for registry in registries), media_type=CONTENT_TYPE_LATEST)


class _Once(Collector):
    """Families that were made already."""

    def __init__(self, made: Families) -> None:
        self._made = list(made)

    def collect(self) -> Families:
        """Them."""
        return iter(self._made)


def families(overview: Overview) -> Families:
    """The metrics of an overview."""
    yield _gauge("refold_store_up", "Whether the archive and the read models could be asked", overview.stored)
    yield _gauge("refold_redis_up", "Whether Redis could be asked", overview.log)
    if overview.stored is not None:
        yield from _of_store(overview.stored)
    if overview.log is not None:
        yield from _of_log(overview.log)
    if overview.settled is not None:
        yield _settled(overview.settled)
    for part in (_lags, _states, _counts):
        yield from part(overview.projections or ())


def _gauge(name: str, meaning: str, there: object) -> Metric:
    return GaugeMetricFamily(name, meaning, value=float(there is not None))


def _of_store(stored: Stored) -> Families:
    yield CounterMetricFamily("refold_archived_events", "Log positions in the archive", value=stored.events)
    yield CounterMetricFamily("refold_refused_events", "Events refused or in conflict, kept", value=stored.refused)
    marks = GaugeMetricFamily("refold_archive_watermark", "Last archived n of the partition", labels=["partition"])
    for partition, mark in sorted(stored.marks.items()):
        marks.add_metric([str(partition)], mark.n)
    yield marks
    unknown = CounterMetricFamily(
        "refold_unknown_type_events", f"Archived events of types unknown here, the {TYPES} most frequent by name",
        labels=["type"],
    )  # fmt: skip
    named: Counter[str] = Counter()
    for each in stored.unknown:
        # what publishers choose may be alike in its beginning, or be called as the rest is: one sample a label
        named[each.type[:LONGEST_TYPE]] += each.events
    named[OTHERS] += stored.unknown_events - named.total()
    for label, events in named.items():
        unknown.add_metric([label], events)
    yield unknown
    lags = GaugeMetricFamily("refold_reactor_lag_events", "Archived events not reacted to", labels=["reactor"])
    ages = GaugeMetricFamily("refold_reactor_lag_seconds", "Age of the oldest of them", labels=["reactor"])
    idle = GaugeMetricFamily("refold_reactor_unowned_partitions", "Partitions nobody runs it over", labels=["reactor"])
    for reactor in stored.reactors:
        lags.add_metric([reactor.name], reactor.lag_events)
        ages.add_metric([reactor.name], reactor.lag_s)
        idle.add_metric([reactor.name], reactor.unowned)
    yield from (lags, ages, idle)


def _settled(settled: Mapping[str, int]) -> Metric:
    """Degraded rate: what is not under `notes`, as a share of all."""
    runs = GaugeMetricFamily("refold_settled_runs", "Settled runs: with notes, or why there are none", labels=["how"])
    for reason in ("", *get_args(DegradedReason)):
        runs.add_metric([reason or "notes"], settled.get(reason, 0))
    return runs


def _of_log(log: LogState) -> Families:
    epochs = GaugeMetricFamily("refold_log_epoch", "Epoch of the partition in Redis", labels=["partition"])
    entries = GaugeMetricFamily("refold_log_entries", "Entries of the partition in Redis", labels=["partition"])
    waiting = GaugeMetricFamily(
        "refold_archive_lag_events", "Entries in Redis not archived yet; none while recovery must look first",
        labels=["partition"],
    )  # fmt: skip
    for partition, each in sorted(log.partitions.items()):
        epochs.add_metric([str(partition)], each.epoch)
        entries.add_metric([str(partition)], each.entries)
        if each.waiting is not None:
            waiting.add_metric([str(partition)], each.waiting)
    yield from (epochs, entries, waiting)
    yield GaugeMetricFamily("refold_redis_memory_bytes", "Memory that Redis uses for data", value=log.memory_bytes)


def _lags(projections: Sequence[ProjectionStatus]) -> Families:
    labels = ["projection", "partition"]
    events = GaugeMetricFamily("refold_projection_lag_events", "Archived events not folded yet", labels=labels)
    seconds = GaugeMetricFamily("refold_projection_lag_seconds", "Age of the oldest of them", labels=labels)
    rates = GaugeMetricFamily("refold_projection_fold_rate", "Events a second, lately", labels=labels)
    for projection in projections:
        for each in projection.partitions:
            where = [projection.name, str(each.partition)]
            events.add_metric(where, each.lag_events)
            seconds.add_metric(where, each.lag_s)
            rates.add_metric(where, each.events_per_s)
    yield from (events, seconds, rates)


def _states(projections: Sequence[ProjectionStatus]) -> Families:
    overall = GaugeMetricFamily("refold_projection_state", "1 for the state it is in", labels=["projection", "state"])
    partitions = GaugeMetricFamily(
        "refold_projection_partitions", "Partitions in each state", labels=["projection", "state"]
    )
    for projection in projections:
        for state in get_args(State):
            overall.add_metric([projection.name, state], float(projection.state == state))
        for state in ("live", "behind", "paused", "stuck", "unowned"):
            count = sum(each.state == state for each in projection.partitions)
            partitions.add_metric([projection.name, state], count)
    yield from (overall, partitions)


def _counts(projections: Sequence[ProjectionStatus]) -> Families:
    letters = GaugeMetricFamily("refold_dead_letters", "Events no fold could take", labels=["projection"])
    parked = GaugeMetricFamily("refold_parked_keys", "Keys that wait for them", labels=["projection"])
    workers = GaugeMetricFamily("refold_projection_workers", "Processes that fold it", labels=["projection"])
    generation = GaugeMetricFamily("refold_projection_generation", "Number of the one read", labels=["projection"])
    rebuilt = GaugeMetricFamily("refold_rebuild_progress_ratio", "Share of its rebuild done", labels=["projection"])
    for each in projections:
        name = [each.name]
        letters.add_metric(name, each.dead_letters)
        parked.add_metric(name, each.parked_keys)
        workers.add_metric(name, len({partition.owner for partition in each.partitions if partition.owner}))
        generation.add_metric(name, each.generation)
        told = each.progress or {}
        if told.get("total"):
            rebuilt.add_metric(name, told.get("done", 0) / told["total"])
    yield from (letters, parked, workers, generation, rebuilt)
