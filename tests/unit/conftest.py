"""Unit tests share their machine with slower ones: no time limit an example, the suite's own limit holds."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("shared", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared")
