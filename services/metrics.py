"""Metrics of this process: what it published, folded and waited for, in a registry of its own for Prometheus.

No label ever holds a name that a tenant chose. What the stores tell for all processes is in ``services.api.metrics``.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Sequence
from time import perf_counter
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics

from events.publisher import Ack, Outcome, Publisher

_QUICK_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_SIZES = (1, 3, 10, 30, 100, 300, 1_000, 3_000, 10_000)


class Meters:
    """The instruments of one process. They cost tens of microseconds a request or batch, next to nothing an event."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = registry = CollectorRegistry()
        self._published = Counter(
            "refold_published_events", "Events that came in, by what became of them and the way they came",
            ["outcome", "source"], registry=registry,
        )  # fmt: skip
        self._publish_s = Histogram(
            "refold_publish_seconds", "From an event's arrival until its publisher is answered: when durable, or fast",
            ["ack"], buckets=_QUICK_S, registry=registry,
        )  # fmt: skip
        self._batch = Histogram(
            "refold_publish_batch_events", "Events published in one call",
            ["source"], buckets=_SIZES, registry=registry,
        )  # fmt: skip
        self._folded = Counter(
            "refold_folded_events", "Log positions that this process folded", ["projection"], registry=registry
        )
        self._step_s = Histogram(
            "refold_fold_step_seconds", "One step of a fold: read, fold, commit",
            ["projection"], buckets=_QUICK_S, registry=registry,
        )  # fmt: skip
        self._step = Histogram(
            "refold_fold_step_events", "Log positions that one step took",
            ["projection"], buckets=_SIZES, registry=registry,
        )  # fmt: skip
        self._fenced = Counter(
            "refold_fenced_commits", "Commits refused, since the partition was somebody else's",
            ["projection"], registry=registry,
        )  # fmt: skip

    def published(self, outcomes: Sequence[Outcome], ack: Ack, source: str, seconds: float) -> None:
        """A call of the publisher was answered."""
        if not outcomes:
            return
        for status, count in Tally(outcome.status for outcome in outcomes).items():
            self._published.labels(status, source).inc(count)
        self._publish_s.labels(ack).observe(seconds)
        self._batch.labels(source).observe(len(outcomes))

    def not_published(self, events: int, source: str) -> None:
        """A call of the publisher failed: its events are to be sent again."""
        self._published.labels("failed", source).inc(events)

    def folded(self, projection: str, read: int, applied: int, seconds: float) -> None:
        """As ``projections.engine.worker.Observer``."""
        self._folded.labels(projection).inc(read)
        self._step_s.labels(projection).observe(seconds)
        self._step.labels(projection).observe(read)

    def fenced(self, projection: str) -> None:
        """As ``projections.engine.worker.Observer``."""
        self._fenced.labels(projection).inc()


class MeteredPublisher(Publisher):
    """A publisher that counts and times what is published through it."""

    def __init__(self, *args: Any, meters: Meters, **options: Any) -> None:
        super().__init__(*args, **options)
        self._meters = meters

    async def publish(
        self, raws: Sequence[Any], *, org: str = "default", ack: Ack = "durable", source: str = "http"
    ) -> list[Outcome]:
        """As ``Publisher.publish``."""
        began = perf_counter()
        try:
            outcomes = await super().publish(raws, org=org, ack=ack, source=source)
        except BaseException:
            self._meters.not_published(len(raws), source)
            raise
        self._meters.published(outcomes, ack, source, perf_counter() - began)
        return outcomes
