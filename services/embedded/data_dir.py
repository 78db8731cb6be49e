"""The data folder of one machine: who holds it, and where that instance answers."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from events.errors import SetupError

LEAST_FREE_BYTES = 16 << 20
"""Less free space than this is a full disk: stores and the log would fail one after another, each in its own words."""


@dataclass(frozen=True)
class Instance:
    """A running ``refold up``: process id, where its HTTP API answers, which Redis holds its log.

    ``url`` is empty while it starts.
    """

    pid: int
    url: str = ""
    redis_url: str = ""


class DataDir:
    """The data folder, held by one process at a time. The lock goes with the process, even with kill -9."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._held: IO[str] | None = None

    def hold(self) -> None:
        """Make the folder and lock it. Raises SetupError for an unwritable folder, another holder, or a full disk."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            held = (self.path / "lock").open("a")
        except OSError as error:
            raise SetupError(
                f"cannot write the data folder {self.path}: {error.strerror}; set REFOLD_DATA to one that you own"
            ) from error
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            held.close()
            raise SetupError(self._refusal()) from error
        self._held = held
        free = shutil.disk_usage(self.path).free
        if free < LEAST_FREE_BYTES:
            raise SetupError(
                f"the disk of {self.path} is full ({free >> 10:,} KiB free): free some space, "
                "or set REFOLD_DATA to a folder on another disk"
            )

    def _refusal(self) -> str:
        other = self.instance()
        if other is None:
            return f"another Refold is using {self.path}: stop it, or set REFOLD_DATA to another folder"
        where = other.url or "still starting"
        return (
            f"Refold is already running on {self.path} (pid {other.pid}, {where}): "
            "use it, stop it, or set REFOLD_DATA to another folder"
        )

    def instance(self) -> Instance | None:
        """The instance that wrote its name here last; None when it left cleanly or wrote nothing readable."""
        try:
            return Instance(**json.loads((self.path / "instance.json").read_text()))
        except (OSError, ValueError, TypeError):
            return None

    def announce(self, instance: Instance) -> None:
        """Write ``instance.json`` whole: a reader sees the former one or this one, never half of it."""
        try:
            with tempfile.NamedTemporaryFile("w", dir=self.path, prefix=".instance-", delete=False) as draft:
                json.dump(asdict(instance), draft)
                draft.flush()
                os.fsync(draft.fileno())
            Path(draft.name).replace(self.path / "instance.json")
        except OSError as error:
            raise SetupError(f"cannot write {self.path / 'instance.json'}: {error.strerror}") from error

    def release(self) -> None:
        """Forget the instance and let the folder go."""
        if self._held is not None:
            (self.path / "instance.json").unlink(missing_ok=True)
            self._held.close()
            self._held = None


def running_instance(path: Path) -> Instance | None:
    """The instance that holds a data folder now; None when nobody does (a killed one's file does not count)."""
    folder = DataDir(path)
    try:
        with (path / "lock").open("a") as probe:
            fcntl.flock(probe, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return folder.instance()
    except OSError:
        return None
    return None
