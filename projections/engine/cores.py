"""How many CPUs there are for us, which in a container are fewer than the machine has."""

from __future__ import annotations

import math
import os
from contextlib import suppress
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")


def cores(cgroup: Path = CGROUP) -> int:
    """CPUs that this process may use at a time, at least one: what its affinity and its container's quota allow."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(allowed, math.ceil(min(_quota(cgroup), allowed))))


def _quota(cgroup: Path) -> float:
    """The CPUs that the cgroup grants, in either version's files; infinite without a limit."""
    with suppress(OSError, ValueError):
        quota, period = (cgroup / "cpu.max").read_text().split()
        return math.inf if quota == "max" else int(quota) / int(period)
    with suppress(OSError, ValueError):
        given = int((cgroup / "cpu" / "cpu.cfs_quota_us").read_text())
        return math.inf if given <= 0 else given / int((cgroup / "cpu" / "cpu.cfs_period_us").read_text())
    return math.inf
