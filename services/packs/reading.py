"""Bytes as a pack: whole and as it was made, or refused with what is wrong and where, before anything is done with it.

Nothing is ever unpacked onto a disk; a pack is read in memory, within bounds. Its names are those of a closed list, so
no path leads anywhere; each file has the length, the number of items and the SHA-256 that the manifest says, and the
manifest has a digest of its own.
"""

from __future__ import annotations

import stat
import struct
import zlib
from collections import Counter
from collections.abc import Sequence
from hashlib import sha256
from io import BytesIO
from typing import Any, TypeVar
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile, ZipInfo

import msgspec

from events.errors import Refused
from services.packs.form import (
    BELIEFS,
    FILES,
    MANIFEST,
    MAX_ITEMS,
    MAX_NAME,
    MAX_PACK_BYTES,
    MEMORIES,
    NOTES,
    SETTLEMENTS,
    VERSION,
    BeliefItem,
    Item,
    Manifest,
    MemoryItem,
    NoteItem,
    Pack,
    SettlementItem,
    line_of,
)

T = TypeVar("T", bound=Item)

MAX_TOTAL_BYTES = 128 << 20
"""Of all files together, without compression."""
MAX_DIRECTORY_BYTES = 16 << 10
"""Of the zip's list of its files, which is read before anything else is known of them."""
MAX_MANIFEST_BYTES = 64 << 10
MAX_ENTRIES = 16
MAX_RATIO = 200
"""Bytes that one byte of a compressed file may become: text becomes 5 to 20, a zip bomb 1,000 and more."""
_SMALL = 1 << 16
"""Files up to so many bytes may be of any ratio."""

_ENCRYPTED = 0x1
_BROKEN = (BadZipFile, NotImplementedError, RuntimeError, EOFError, OSError, ValueError, IndexError, OverflowError,
           zlib.error, struct.error)  # fmt: skip
"""What ``zipfile`` raises for bytes that are no zip, or a damaged one."""


class BadPack(Refused):
    """The file is no memory pack, or a damaged one; nothing of it was imported."""


def read_pack(raw: bytes) -> Pack:
    """The pack that bytes hold. Raises BadPack; its ``code`` tells damage, tricks, size and version apart."""
    if len(raw) > MAX_PACK_BYTES:
        raise _too_large(f"it has {len(raw):,} bytes, more than {MAX_PACK_BYTES:,}")
    _check_end(raw)
    try:
        with ZipFile(BytesIO(raw)) as archive:
            entries = _entries(archive)
            texts = {name: archive.read(entry) for name, entry in entries.items()}
    except BadPack:
        raise
    except _BROKEN as error:
        raise _damaged(f"it is no whole zip: {error or type(error).__name__}") from error
    manifest = _manifest(texts.pop(MANIFEST))
    _check_names(manifest, texts)
    return Pack(
        manifest.scope, manifest.as_of, manifest.created_by, manifest.source,
        memories=_items(MEMORIES, MemoryItem, texts, manifest),
        beliefs=_items(BELIEFS, BeliefItem, texts, manifest),
        notes=_items(NOTES, NoteItem, texts, manifest),
        settlements=_items(SETTLEMENTS, SettlementItem, texts, manifest),
    )  # fmt: skip


def _check_end(raw: bytes) -> None:
    """The end of the zip, which tells how much is read before its files are known: 22 bytes, without a comment."""
    end = raw[-22:]
    if len(end) < 22 or end[:4] != b"PK\x05\x06" or end[-2:] != b"\0\0":
        raise _damaged("it does not end as a zip without a comment does")
    (size,) = struct.unpack("<L", end[12:16])
    if size > MAX_DIRECTORY_BYTES or raw[-42:-38] == b"PK\x06\x07":
        raise _too_large("its list of files is longer than that of any pack")


def _entries(archive: ZipFile) -> dict[str, ZipInfo]:
    """The entries by name, none of them read yet. Raises BadPack for tricks and for what is too large."""
    entries = archive.infolist()
    if len(entries) > MAX_ENTRIES:
        raise _too_large(f"it has {len(entries):,} files, more than {MAX_ENTRIES}")
    for entry in entries:
        _check_entry(entry)
    doubled = [name for name, number in Counter(entry.filename for entry in entries).items() if number > 1]
    if doubled:
        raise BadPack(f"it holds {doubled[0]!r} twice: nobody can tell which one counts", code="pack_unsafe")
    total = sum(entry.file_size for entry in entries)
    if total > MAX_TOTAL_BYTES:
        raise _too_large(f"its files have {total:,} bytes, more than {MAX_TOTAL_BYTES:,}")
    named = {entry.filename: entry for entry in entries}
    if MANIFEST not in named:
        raise BadPack(f"it holds no {MANIFEST}: `refold pack export` makes packs", code="no_pack")
    if named[MANIFEST].file_size > MAX_MANIFEST_BYTES:
        raise _too_large(f"its {MANIFEST} has more than {MAX_MANIFEST_BYTES:,} bytes")
    return named


def _check_entry(entry: ZipInfo) -> None:
    name = entry.orig_filename  # with whatever follows a NUL
    steps = name.replace("\\", "/").split("/")
    mode = entry.external_attr >> 16
    if len(steps) > 1 or name in ("", ".", "..") or ":" in name or not name.isprintable():
        raise BadPack(f"it holds {name!r}: a pack has no folders and no paths", code="pack_unsafe")
    if mode and not stat.S_ISREG(mode) and stat.S_IFMT(mode):
        raise BadPack(f"{name!r} is no plain file but a link or a device", code="pack_unsafe")
    if entry.flag_bits & _ENCRYPTED:
        raise BadPack(f"{name!r} is encrypted: decrypt the pack first", code="pack_unsafe")
    if entry.compress_type not in (ZIP_STORED, ZIP_DEFLATED):
        raise BadPack(f"{name!r} is compressed in a way that packs are not: store or deflate it", code="pack_unsafe")
    if entry.file_size > max(_SMALL, MAX_RATIO * entry.compress_size):
        raise _too_large(f"{name!r} would grow from {entry.compress_size:,} to {entry.file_size:,} bytes")


def _manifest(text: bytes) -> Manifest:
    version = _member(text, "refold_pack")
    if isinstance(version, int) and version > VERSION:
        raise BadPack(
            f"it is of version {version}, and this Refold reads version {VERSION}: upgrade Refold, then import again",
            code="pack_version",
        )
    try:
        manifest = msgspec.json.decode(text, type=Manifest)
    except (msgspec.DecodeError, RecursionError) as error:
        raise _damaged(f"its {MANIFEST} cannot be read: {error}") from error
    if manifest.refold_pack != VERSION:
        raise BadPack(f"its {MANIFEST} names no version that there is", code="pack_version")
    if manifest != manifest.digested():
        raise _damaged(f"its {MANIFEST} is not as it was written")
    scope = manifest.scope
    if (scope.level == "org") == bool(scope.name) or len(scope.name) > MAX_NAME or not scope.key.isprintable():
        raise _damaged(f"its {MANIFEST} names no scope: {scope.key!r:.300}")
    return manifest


def _member(text: bytes, name: str) -> Any:
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise _damaged(f"its {MANIFEST} cannot be read: {error}") from error
    return value.get(name) if isinstance(value, dict) else None


def _check_names(manifest: Manifest, texts: dict[str, bytes]) -> None:
    listed = set(manifest.files)
    for name in sorted(texts.keys() - listed):
        raise _damaged(f"it holds {name!r}, of which its {MANIFEST} says nothing")
    for name in sorted(listed - texts.keys()):
        raise _damaged(f"{name!r} is missing")
    if (items := sum(noted.items for noted in manifest.files.values())) > MAX_ITEMS:
        raise _too_large(f"it has {items:,} items, more than {MAX_ITEMS:,}")
    if listed != set(FILES):
        raise _damaged(f"a pack holds {', '.join(FILES)}, not {', '.join(sorted(listed))}")


def _items(name: str, kind: type[T], texts: dict[str, bytes], manifest: Manifest) -> tuple[T, ...]:
    text, noted = texts[name], manifest.files[name]
    if len(text) != noted.bytes or sha256(text).hexdigest() != noted.sha256:
        raise _damaged(f"{name!r} is not what was written into it")
    lines = text.splitlines()
    if len(lines) != noted.items:
        raise _damaged(f"{name!r} has {len(lines):,} items, and its {MANIFEST} says {noted.items:,}")
    decoder = msgspec.json.Decoder(kind)
    items = []
    for number, line in enumerate(lines, 1):
        try:
            items.append(decoder.decode(line))
            line_of(items[-1])  # what no line can be made of again, such as an integer beyond 64 bits
        except (msgspec.DecodeError, RecursionError, TypeError) as error:
            raise _damaged(f"{name!r}, line {number}: {error}") from error
    _check_distinct(name, items)
    return tuple(items)


def _check_distinct(name: str, items: Sequence[Item]) -> None:
    by = {MEMORIES: "memory", BELIEFS: "belief"}.get(name)
    if by is not None and len({getattr(item, by) for item in items}) < len(items):
        raise _damaged(f"{name!r} names a {by} twice")


def _damaged(why: str) -> BadPack:
    return BadPack(f"this is no whole memory pack: {why}; nothing was imported", code="pack_damaged")


def _too_large(why: str) -> BadPack:
    return BadPack(f"this pack is not unpacked: {why}; nothing was imported", code="pack_too_large")
