"""A calibration of this backend, for the service and for whoever asks for one now."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlalchemy import Connection

from services.apps.reactors import DoorOutlet
from services.calibrating.calibrator import Calibration
from services.composition import Backend


def calibration_of(backend: Backend, org: str = "") -> Calibration:
    """Looks at the beliefs of an org; empty: of every org."""

    async def read(work: Callable[[Connection], Any]) -> Any:
        return (await backend.read_models.read("beliefs", work, None, 0)).value

    return Calibration(
        read, backend.archive, DoorOutlet(backend.publisher, backend.db), backend.partitions, backend.belief_rules,
        backend.models, backend.settings.calibrate_model, org,
    )  # fmt: skip
