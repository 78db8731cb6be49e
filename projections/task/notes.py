"""Categories of notes: the one place that says which of them are not to be relied on without another look."""

from __future__ import annotations

VERIFY_AGAIN = frozenset(("assumption", "environment", "external"))
"""What notes of these categories say may have changed since, whoever wrote them: whoever reads one checks it first.

The setting ``REFOLD_VERIFY_NOTES`` names others.
"""
