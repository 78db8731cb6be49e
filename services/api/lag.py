"""How far read models are, as JSON: the same in ``/v1/projections``, in its partitions and in ``/readyz``."""

from __future__ import annotations

from typing import Any

from projections.status import PartitionStatus, ProjectionStatus


def lag_document(status: ProjectionStatus) -> dict[str, Any]:
    """How far a read model is behind the archive, and how fast it gets on."""
    return {
        "lag_events": status.lag_events,
        "lag_s": round(status.lag_s, 3),
        "events_per_s": round(status.events_per_s, 1),
        "eta_s": _rounded(status.eta_s),
        "workers": len({each.owner for each in status.partitions if each.owner}),
    }


def partition_document(status: PartitionStatus) -> dict[str, Any]:
    """One partition of a read model."""
    return {
        "partition": status.partition,
        "position": str(status.position),
        "state": status.state,
        "lag_events": status.lag_events,
        "lag_s": round(status.lag_s, 3),
        "events_per_s": round(status.events_per_s, 1),
        "eta_s": _rounded(status.eta_s),
        "still_s": _rounded(status.still_s),
        "worker": status.owner or None,
        "reason": status.reason,
    }


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)
