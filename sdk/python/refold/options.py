"""How a client behaves, built once from its arguments and the environment."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Literal

from refold.address import Address
from refold.delivery import Policy
from refold.envelope import Scope
from refold.spool import Spool


@dataclass(frozen=True)
class Options:
    """Settings of one client. Times in seconds."""

    address: Address
    scope: Scope
    ack: Literal["durable", "fast"] = "durable"
    api_key: str = ""
    spool: Path | None = None
    policy: Policy = field(default_factory=Policy)
    timeout_s: float = 10.0

    @property
    def url(self) -> str:
        """Where the backend answers."""
        return self.address.url

    def open_spool(self) -> Spool | None:
        """The spool of this backend and organisation, apart from those of others; None when there is none."""
        return None if self.spool is None else Spool(own_folder(self.spool, self.address, self.scope.org))


def own_folder(folder: Path, address: Address, org: str) -> Path:
    """Where in a folder what waits for one backend and organisation is, apart from that of others."""
    return folder / sha256(f"{address.place}\x1f{org}".encode()).hexdigest()[:16]


def spool_folder(choice: str | os.PathLike[str] | bool) -> Path | None:
    """Where the spool is: a folder, True for ``REFOLD_SPOOL`` or the user's state folder, False for none."""
    if choice is False:
        return None
    if choice is not True:
        return Path(choice)
    if os.environ.get("REFOLD_SPOOL"):
        return Path(os.environ["REFOLD_SPOOL"])
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "refold" / "spool"
