"""Events that could not be sent, on disk: JSON lines in files that one process each holds by a lock.

A file belongs to the process that made it. What a dead process left is adopted by the next one that looks, oldest
first, and sent before its own events. A file that was sent is deleted; one that was sent half is sent again from its
start, which the backend recognises by the events' ids. Lines that can be no events never leave: they are put into a
``*.rejected`` file beside the spool, for a person to look at (see ``refold.mending`` for what becomes of the others).
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from io import FileIO
from pathlib import Path

from refold.ids import uuid7
from refold.mending import FILLER, Mended, mend

logger = logging.getLogger("refold")

_sync = getattr(os, "fdatasync", os.fsync)
"""Puts a file's content, and its size when it grew, on the disk."""

if sys.platform == "win32":  # pragma: no cover
    import msvcrt

    def _try_lock(file: FileIO) -> bool:
        try:
            # far behind the content, so that the lock keeps nobody from reading
            os.lseek(file.fileno(), 1 << 62, os.SEEK_SET)
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True
else:
    import fcntl

    def _try_lock(file: FileIO) -> bool:
        try:
            fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


class Spool:
    """A first-in first-out queue of lines on disk. Not thread-safe: its owner has a lock. Raises OSError.

    With ``segment_bytes``, for owners who append all the time, a file is made of so many blank bytes and written over:
    a disk syncs what has its place already in a third of the time. It is written on to when it was sent, until it is
    full. While ``wants_segment``, another thread may make the next one ahead (``new_segment``, which touches nothing of
    the spool's own) and hand it over (``give_segment``). ``fill``: fill holes that damage left in the numbers of a run.
    """

    def __init__(self, folder: Path, *, segment_bytes: int = 0, fill: bool = True) -> None:
        self._folder = folder
        self._segment_bytes = segment_bytes
        self._fill = fill
        self._files: list[_SpoolFile] = []
        self._own: _SpoolFile | None = None
        self._next: _SpoolFile | None = None
        self._current: _SpoolFile | None = None

    @property
    def wants_segment(self) -> bool:
        """Whether the file that is being filled has little room left, and none comes after it."""
        own = self._own
        return self._next is None and own is not None and 0 < self._segment_bytes <= 2 * own.end

    def new_segment(self) -> _SpoolFile:
        """An empty file, made and locked. Raises OSError."""
        return _SpoolFile.create(self._folder, self._segment_bytes)

    def give_segment(self, made: _SpoolFile) -> None:
        """The file to go on with when the one that is being filled is full.

        One that came too late goes: files are adopted in the order of their names, so none may follow a younger one.
        """
        if any(file.path.name > made.path.name for file in self._files):
            made.delete()
        else:
            self._next = made

    @property
    def folder(self) -> Path:
        """Where it is."""
        return self._folder

    def adopt(self) -> int:
        """Take over what dead processes left; returns how many lines that is."""
        if not self._folder.is_dir():
            return 0
        held = {file.path for file in self._files}
        how = (self._fill, self._segment_bytes > 0)
        found = [_open(path, *how) for path in sorted(self._folder.glob("*.jsonl")) if path not in held]
        adopted = [file for file in found if file is not None]
        own = [file for file in self._files if file is self._own]
        self._files = [file for file in self._files if file is not self._own] + adopted + own
        return sum(len(file.lines) for file in adopted)

    def __len__(self) -> int:
        return sum(len(file.lines) for file in self._files)

    def append(self, lines: Sequence[bytes]) -> None:
        """Put lines at the end; they are on the disk when this returns."""
        if self._own is None:
            self._own, self._next = self._next or self.new_segment(), None
            self._files.append(self._own)
        self._own.append(lines)
        if 0 < self._segment_bytes <= self._own.end:
            self._own = None

    def lines(self) -> list[bytes]:
        """The lines that wait, in order."""
        return [line for file in self._files for line in file.lines]

    def prepend(self, lines: Sequence[bytes]) -> None:
        """Put lines before the own ones that wait here."""
        if self._own is None:
            self.append(lines)
        else:
            self._own.rewrite([*lines, *self._own.lines])

    def head(self, limit: int) -> list[bytes]:
        """The first lines, at most ``limit``."""
        for file in [file for file in self._files if not file.lines]:
            self._discard(file)
        self._current = next((file for file in self._files if file.lines), None)
        return self._current.lines[:limit] if self._current else []

    def replace(self, count: int, lines: Sequence[bytes]) -> None:
        """Take the ``count`` lines that ``head`` gave last away, and put ``lines`` in their place.

        When the disk cannot take the change it holds in memory alone, and the next process sends them again.
        """
        # not always the first file: others may have been adopted since, and they go first
        current = self._current
        if current is None:
            return
        if lines:
            self._rewrite(current, [*lines, *current.lines[count:]])
        else:
            del current.lines[:count]
        if not current.lines:
            self._discard(current)

    def remove(self, lines: Sequence[bytes], *, from_disk: bool = True) -> None:
        """Take lines away, wherever they wait, and those that were sent as well: none of them is sent again.

        The last ones go first: what is cut off in the midst of it leaves none without those before. Not ``from_disk``,
        or when the disk cannot take the change, it holds in memory alone, and the next process sends them again.
        """
        gone = set(lines)
        for file in reversed(self._files):
            rest = [line for line in file.lines if line not in gone]
            if from_disk and (file is self._current or len(rest) < len(file.lines)):
                self._rewrite(file, rest)
            else:
                file.lines = rest

    def reject(self, lines: Sequence[bytes]) -> Path:
        """Set lines of the last ``head`` aside for a person to look at; returns the file that they are in."""
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = self._current.path if self._current else self._folder / f"{uuid7()}.jsonl"
        return _set_aside(path, lines)

    def tidy(self) -> None:
        """Delete the own file when nothing waits in it, and the one made to come after it."""
        if self._next is not None:
            self._next.delete()
            self._next = None
        if self._own is not None and not self._own.lines:
            self._own.delete()
            self._files.remove(self._own)
            self._own = None

    def close(self) -> None:
        """Let the files go; the lines in them stay for the next process."""
        for file in (*self._files, *([self._next] if self._next else ())):
            file.close()
        self._files, self._own, self._next, self._current = [], None, None, None

    def _rewrite(self, file: _SpoolFile, lines: list[bytes]) -> None:
        try:
            file.rewrite(lines)
        except OSError as error:
            logger.warning("the spool file %s cannot be rewritten: %s", file.path, error)
            file.lines = lines

    def _discard(self, file: _SpoolFile) -> None:
        if file is self._own and self._segment_bytes:
            return
        file.delete()
        self._files.remove(file)
        if file is self._own:
            self._own = None
        if file is self._current:
            self._current = None


class _SpoolFile:
    """One locked file and the lines of it that are still to be sent."""

    def __init__(self, path: Path, handle: FileIO, lines: list[bytes], end: int) -> None:
        self.path = path
        self.lines = lines
        self.end = end
        self._handle = handle

    @classmethod
    def create(cls, folder: Path, padding: int) -> _SpoolFile:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        while True:
            path = folder / f"{uuid7()}.jsonl"
            handle = path.open("xb", buffering=0)
            if _try_lock(handle):
                file = cls(path, handle, [], 0)
                with suppress(OSError):  # without it goes as well, and a full disk says so at the next line
                    file._write(b"\n" * padding)
                _sync_folder(folder)
                return file
            handle.close()  # another process saw it before the lock was on, and will delete it

    @classmethod
    def open(cls, path: Path, fill: bool, padded: bool) -> _SpoolFile | None:
        """The file, locked, or None when another process has it."""
        try:
            handle = path.open("r+b", buffering=0)
        except FileNotFoundError:
            return None
        if not _try_lock(handle) or not _is_at(path, handle):
            handle.close()
            return None
        handle.seek(0)
        raw = handle.read()
        mended = mend(raw.rstrip(b"\n") if padded else raw, fill=fill)
        file = cls(path, handle, mended.lines, len(raw))
        if mended.damaged or mended.filled:
            file._mend(mended)
        return file

    def _mend(self, mended: Mended) -> None:
        """Put what is no event aside, then the rest in its place: the next process must not find the damage again."""
        place = ""
        try:
            if mended.damaged:
                place = f" (kept in {_set_aside(self.path, mended.damaged)})"
            self.rewrite(mended.lines)
        except OSError as error:
            place = f" (it cannot be mended: {error})"
        logger.warning(
            "the spool file %s is damaged: %d lines are no events%s, %d numbers that its runs lack are filled with %s",
            self.path, len(mended.damaged), place, mended.filled, FILLER,
        )  # fmt: skip

    def append(self, lines: Sequence[bytes]) -> None:
        raw = b"".join(line + b"\n" for line in lines)
        self._write(raw)
        self.end += len(raw)
        self.lines.extend(lines)

    def _write(self, raw: bytes) -> None:
        """At the end of what is written, on the disk when this returns."""
        self._handle.seek(self.end)
        try:
            written = 0
            while written < len(raw):  # a disk that gets full takes a part, and says so at the next call only
                written += self._handle.write(raw[written:])
            _sync(self._handle.fileno())
        except BaseException:
            os.ftruncate(self._handle.fileno(), self.end)  # no half line for the next one to be glued to
            raise

    def rewrite(self, lines: list[bytes]) -> None:
        """Replace the whole content at once: the old or the new file is there, never a half."""
        draft = self.path.with_suffix(".new")
        handle = draft.open("w+b", buffering=0)
        if not _try_lock(handle):
            handle.close()
            raise OSError(f"{draft} is held by another process")
        replacement = _SpoolFile(draft, handle, [], 0)
        replacement.append(lines)
        draft.replace(self.path)
        _sync_folder(self.path.parent)
        self._handle.close()
        self._handle, self.lines, self.end = handle, lines, replacement.end

    def delete(self) -> None:
        try:
            self.path.unlink(missing_ok=True)
        except OSError as error:
            logger.warning("the spool file %s was sent and cannot be deleted: %s", self.path, error)
        self._handle.close()

    def close(self) -> None:
        self._handle.close()


def _open(path: Path, fill: bool, padded: bool) -> _SpoolFile | None:
    """The file, or None when another process has it or it cannot be read: that keeps nobody from the other files."""
    try:
        return _SpoolFile.open(path, fill, padded)
    except OSError as error:
        logger.warning("the spool file %s cannot be read: %s", path, error)
        return None


def _set_aside(path: Path, lines: Sequence[bytes]) -> Path:
    """Put lines of a spool file into the file of rejected ones beside it, on the disk; returns where that is."""
    rejected = path.with_suffix(".rejected")
    with rejected.open("ab") as file:
        file.writelines(line + b"\n" for line in lines)
        file.flush()
        os.fsync(file.fileno())
    return rejected


def _is_at(path: Path, handle: FileIO) -> bool:
    """Whether the open file is the one that has the name now: a former owner may have deleted it meanwhile."""
    try:
        return path.stat().st_ino == os.fstat(handle.fileno()).st_ino
    except FileNotFoundError:
        return False


def _sync_folder(folder: Path) -> None:
    if sys.platform == "win32":  # pragma: no cover
        return
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
