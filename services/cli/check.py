"""One finding of ``refold doctor``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Check:
    """One finding. ``state``: ok, warning (it works, but look), bad (it will not work)."""

    name: str
    state: Literal["ok", "warning", "bad"]
    found: str
    advice: str = ""
