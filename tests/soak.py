"""Tests that continuous integration has no time for."""

from __future__ import annotations

import os

import pytest

ALL = bool(os.environ.get("REFOLD_CHAOS_ALL"))
"""Everything, however long it takes: ``make soak`` sets it."""

soak = pytest.mark.skipif(not ALL, reason="`make soak` runs it")
