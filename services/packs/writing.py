"""A pack as bytes: a zip of files stored as they are. The same pack makes the same bytes, whenever and wherever."""

from __future__ import annotations

from hashlib import sha256
from io import BytesIO
from zipfile import ZIP_STORED, ZipFile, ZipInfo

from events.errors import Refused
from services.packs.form import MANIFEST, MAX_ITEMS, MAX_PACK_BYTES, VERSION, FileNote, Manifest, Pack

_TIME = (1980, 1, 1, 0, 0, 0)
"""The first moment that a zip can hold: a file's time says nothing here."""
_UNIX, _PLAIN_FILE = 3, 0o100644


def write_pack(pack: Pack) -> bytes:
    """The bytes of a pack. Raises Refused for one that nobody could read."""
    texts = pack.texts()
    written = BytesIO()
    with ZipFile(written, "w", ZIP_STORED) as archive:
        for name, text in {MANIFEST: _manifest(pack, texts).text(), **texts}.items():
            archive.writestr(_entry(name), text)
    raw, items = written.getvalue(), sum(pack.counts.values())
    if len(raw) > MAX_PACK_BYTES or items > MAX_ITEMS:
        raise Refused(
            f"{pack.scope.key} holds {items:,} items of {len(raw):,} bytes together, and a pack {MAX_ITEMS:,} of "
            f"{MAX_PACK_BYTES:,} at most: forget what is not needed first",
            code="scope_too_large",
        )
    return raw


def _manifest(pack: Pack, texts: dict[str, bytes]) -> Manifest:
    counts = pack.counts
    files = {
        name: FileNote(counts[name.removesuffix(".jsonl")], len(text), sha256(text).hexdigest())
        for name, text in texts.items()
    }
    return Manifest(
        refold_pack=VERSION, scope=pack.scope, as_of=pack.as_of, created_by=pack.created_by,
        source=dict(pack.source), files=files,
    ).digested()  # fmt: skip


def _entry(name: str) -> ZipInfo:
    entry = ZipInfo(name, _TIME)
    entry.create_system = _UNIX  # else the machine that writes it shows
    entry.external_attr = _PLAIN_FILE << 16
    return entry
