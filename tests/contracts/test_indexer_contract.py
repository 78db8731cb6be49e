"""The indexer on a read model of cards: each text once, whatever changes, dies or comes twice; models never mixed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sqlalchemy import Connection, func, select

from events.archive import schema
from events.database import Stores
from events.errors import SetupError, Transient
from events.event import Event
from projections import generations
from projections.engine.birth import ensure_first_generation
from projections.engine.folder import PartitionFolder
from projections.engine.source import ArchiveSource
from projections.engine.store import GenerationStore
from projections.memory_cards import MEMORY_CARDS
from projections.read_models import ReadModels
from projections.rebuilding.rebuild import rebuild
from projections.rebuilding.verify import verify
from projections.retrieval import models, vectors
from projections.retrieval.text import content_hash
from services.cli.doctor_embeddings import look_at_embeddings
from services.embedding.choice import Choice
from services.embedding.process import Died, Loaded
from services.indexer.indexer import Indexer
from services.indexer.status import read_stored, read_waiting
from services.settings import Settings
from tests.contracts.engine_lab import PARTITIONS, Lab, event
from tests.coroutines import in_loop

ORG = "default"
WAIT_S = 60.0


class Letters:
    """A model that counts letters, and the texts that it is asked about."""

    def __init__(self, choice: Choice, dimension: int = 26, fails: Exception | None = None) -> None:
        self.name = choice.name
        self.dimension = dimension
        self.fails = fails
        self.asked: list[str] = []
        self.pause_s = 0.0
        self.is_silent = False

    async def load(self) -> Loaded:
        if self.fails is not None:
            raise self.fails
        return Loaded(self.name, self.dimension)

    async def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        self.asked += texts
        if any("deadly" in text for text in texts):
            raise Died
        await asyncio.sleep(self.pause_s)
        rows = np.zeros((len(texts), self.dimension), dtype=np.float32)
        for row, text in zip(rows, texts, strict=True):
            for letter in text.lower():
                row[ord(letter) % self.dimension] += 1
            row /= max(float(np.linalg.norm(row)), 1e-9)
            if "nan" in text:
                row[0] = np.nan
            if "zero" in text or self.is_silent:
                row[:] = 0
        return rows

    async def close(self) -> None:
        pass


@pytest.fixture
def lab(stores: Stores) -> Iterator[Lab]:
    lab = Lab(stores)
    ensure_first_generation(MEMORY_CARDS, lab.stores, lab.log, "test")
    yield lab
    lab.log.close()


class Desk:
    """A read model of cards that is folded on demand, and indexers beside it."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.read_models = ReadModels([MEMORY_CARDS], lab.stores, lab.log)
        self.models: dict[str, Letters] = {}

    def publish(self, *texts: str, **envelope: Any) -> None:
        """One card a text, each in a task of its own, archived and folded."""
        told = [said(text, **envelope) for text in texts]
        self.lab.archive(*told)
        fold(self.lab)

    def model(self, choice: Choice) -> Letters:
        return self.models.setdefault(choice.model, Letters(choice))

    def indexer(self, model: str = "letters", **given: Any) -> Indexer:
        given = {"lease_s": 2.0, "new_model": self.model, **given}
        return Indexer(Choice(model), self.read_models, self.lab.log, f"test-{id(given)}", **given)

    @asynccontextmanager
    async def running(self, *indexers: Indexer) -> AsyncIterator[list[asyncio.Task[None]]]:
        stopping = asyncio.Event()
        tasks = [asyncio.create_task(indexer.run(stopping)) for indexer in indexers]
        try:
            yield tasks
        finally:
            stopping.set()
            await asyncio.gather(*tasks)

    async def index(self, model: str = "letters", **given: Any) -> None:
        """Let an indexer run until nothing is left to do, and the model is the one that searches use."""

        async def is_done() -> bool:
            return tasks[0].done() or await self.is_done(model)

        async with self.running(self.indexer(model, **given)) as tasks:
            await until(is_done)

    async def is_done(self, model: str) -> bool:
        stored = await self.lab.log.read(read_stored)
        left = await read_waiting(self.read_models, stored)
        found = {each.model.name: (each.model.state, waiting) for each, waiting in zip(stored, left, strict=True)}
        return found.get(model) == ("active", 0)

    async def is_known(self, model: str, *, texts: int) -> bool:
        """Whether a model was asked about so many texts."""
        stored = await self.lab.log.read(read_stored)
        return any(each.model.name == model and each.vectors == texts for each in stored)

    def vectors(self, model: str = "letters", org: str = ORG) -> set[str]:
        return self.lab.log.read_now(partial(vectors.hashes_of, org=org, model=model))

    def read(self, *texts: str, model: str = "letters", org: str = ORG) -> tuple[list[str], NDArray[np.float32]]:
        hashes = [content_hash(text) for text in texts]
        return self.lab.log.read_now(partial(vectors.read, org=org, model=model, hashes=hashes))


@pytest.fixture
def desk(lab: Lab) -> Iterator[Desk]:
    desk = Desk(lab)
    yield desk
    desk.read_models.close()


_numbers = iter(range(1_000_000))


def said(text: str, **envelope: Any) -> Event:
    number = next(_numbers)
    return event("message.added", f"e{number}", f"t{number}", {"role": "user", "content": text}, **envelope)


def fold(lab: Lab) -> None:
    active = lab.log.read_now(partial(generations.active, projection=MEMORY_CARDS.name))
    assert active is not None
    store = GenerationStore(MEMORY_CARDS, lab.stores.generation(active.name))
    for partition in range(PARTITIONS):
        folder = PartitionFolder.take_over(store, ArchiveSource(lab.log), partition, "test", batch=100)
        while folder.step().read:
            pass
        folder.hand_over()
    store.db.close()


async def until(condition: Callable[[], Coroutine[Any, Any, bool]]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not await condition():  # noqa: ASYNC110  a store tells nobody
            await asyncio.sleep(0.02)


TEXTS = [f"I would like to fly from town {letter * 3} to Oslo" for letter in "abcdefghij"]


@in_loop
async def test_each_text_is_embedded_once_and_no_rebuild_asks_again(desk: Desk) -> None:
    """C10, C33: other batch sizes, a second indexer, a start anew, a rebuild: what is new alone is embedded."""
    desk.publish(*TEXTS)
    await desk.index(batch=1)
    asked = desk.models["letters"].asked
    assert sorted(asked) == sorted(TEXTS)
    found, rows = desk.read(*TEXTS)
    assert len(found) == 10 and np.allclose(np.linalg.norm(rows, axis=1), 1.0)
    await desk.index(batch=32)
    await asyncio.to_thread(rebuild, MEMORY_CARDS, desk.lab.stores, desk.lab.log, processes=1)
    await desk.index(batch=32)
    assert len(asked) == 10
    desk.publish("a flight to Narvik", TEXTS[0])  # the same words in another task are another card, and no other vector
    await desk.index()
    assert asked[10:] == ["a flight to Narvik"]


@in_loop
async def test_the_read_model_is_the_same_without_an_indexer(desk: Desk) -> None:
    """Vectors are beside the read model: it neither has them nor waits for them."""
    desk.publish(*TEXTS[:4])
    await desk.index()
    found = await asyncio.to_thread(verify, MEMORY_CARDS, desk.lab.stores, desk.lab.log, batch=3)
    assert found.equal
    assert len(desk.models["letters"].asked) == 4


@in_loop
async def test_cards_that_appear_are_found_soon(desk: Desk) -> None:
    async with desk.running(desk.indexer()):
        for text in TEXTS[:3]:
            desk.publish(text)
            await until(partial(asyncio.to_thread, lambda text=text: content_hash(text) in desk.vectors()))


@in_loop
async def test_another_model_takes_over_when_it_has_all_vectors(desk: Desk) -> None:
    """C17: until then searches use the one before, which is served, too; vectors of both are kept apart."""
    desk.publish(*TEXTS)
    await desk.index("letters")
    desk.models["wide"] = wide = Letters(Choice("wide"), dimension=40)
    wide.pause_s = 0.2
    async with desk.running(desk.indexer("wide", batch=2)):
        await until(partial(asyncio.to_thread, lambda: bool(desk.vectors("wide"))))
        active = await desk.lab.log.read(models.active)
        assert active is not None and active.name == "letters"
        desk.publish("a flight to Turku meanwhile")
        wide.pause_s = 0.0
        await until(partial(desk.is_done, "wide"))
    assert desk.models["letters"].asked.count("a flight to Turku meanwhile") == 1
    assert len(desk.vectors("letters")) == len(desk.vectors("wide")) == 11
    assert desk.read(TEXTS[0], model="wide")[1].shape == (1, 40)
    assert desk.read(TEXTS[0], model="letters")[1].shape == (1, 26)
    states = {each.model.name: each.model.state for each in desk.lab.log.read_now(read_stored)}
    assert states == {"wide": "active", "letters": "retired"}
    # a change that is taken back costs nothing; the third one in a row is forgotten
    asked = len(desk.models["letters"].asked)
    await desk.index("letters")
    assert len(desk.models["letters"].asked) == asked
    await desk.index("third")
    assert {each.model.name for each in desk.lab.log.read_now(read_stored)} == {"third", "letters"}
    assert not desk.vectors("wide")


@pytest.mark.parametrize("fails", [SetupError("its files are gone"), Transient("its endpoint does not answer")])
@in_loop
async def test_a_model_that_cannot_be_asked_any_more_holds_nothing_up(desk: Desk, fails: Exception) -> None:
    desk.publish(*TEXTS[:3])
    await desk.index("letters")
    desk.models["letters"].fails = fails
    desk.publish(*TEXTS[3:5])
    await desk.index("other")
    assert len(desk.vectors("other")) == 5


@in_loop
async def test_a_model_that_gives_other_numbers_starts_anew(desk: Desk) -> None:
    """C44: an endpoint that serves something else by the same name. Old and new vectors are never compared."""
    desk.publish(*TEXTS[:5])
    await desk.index("letters")
    desk.models["letters"].dimension = 30
    desk.publish(TEXTS[5])
    with pytest.raises(Transient, match="30 numbers"):
        await desk.index("letters")
    assert desk.read(*TEXTS)[1].shape[1] == 30
    await desk.index("letters")
    assert desk.read(*TEXTS[:6])[1].shape == (6, 30)


@in_loop
async def test_what_a_model_has_nothing_to_say_about_is_not_asked_again(desk: Desk) -> None:
    """Zero and NaN vectors are never stored."""
    desk.publish("a nan flight to Moss at 10:40", "a zero flight to Bergen at 11:55", TEXTS[0])
    await desk.index()
    assert [content_hash(TEXTS[0])] == desk.read(
        "a nan flight to Moss at 10:40", "a zero flight to Bergen at 11:55", TEXTS[0]
    )[0]
    await asyncio.to_thread(rebuild, MEMORY_CARDS, desk.lab.stores, desk.lab.log, processes=1)
    await desk.index()
    assert len(desk.models["letters"].asked) == 3


@in_loop
@pytest.mark.parametrize("nothing", ["nan", "zero"])
async def test_a_model_that_gives_no_vector_at_all_becomes_no_searches_model(desk: Desk, nothing: str) -> None:
    """C17: though it is the first one, until there is a text that it can tell something of."""
    desk.publish(f"a {nothing} flight to Moss at 10:40", f"a {nothing} flight to Bergen at 11:55")
    async with desk.running(desk.indexer("vain")):
        await until(lambda: desk.is_known("vain", texts=2))
    (vain,) = desk.lab.log.read_now(read_stored)
    assert desk.lab.log.read_now(models.active) is None and vain.model.state == "building" and vain.in_vain
    desk.publish(TEXTS[0])
    await desk.index("vain")
    (vain,) = desk.lab.log.read_now(read_stored)
    assert vain.model.state == "active" and not vain.in_vain


@in_loop
async def test_no_model_gives_way_to_one_that_gives_no_vector(desk: Desk) -> None:
    """C17."""
    texts = ("a zero flight to Moss at 10:40", "a flight to Bergen at 11:55")
    desk.publish(*texts)
    await desk.index("letters")
    desk.model(Choice("vain")).is_silent = True
    async with desk.running(desk.indexer("vain")):
        await until(lambda: desk.is_known("vain", texts=2))
        desk.publish("another flight, to Oslo")
        await until(lambda: desk.is_known("vain", texts=3))
    states = {each.model.name: (each.model.state, each.in_vain) for each in desk.lab.log.read_now(read_stored)}
    assert states == {"letters": ("active", False), "vain": ("building", True)}
    check = look_at_embeddings(Settings(database_url=desk.lab.stores.url))
    assert (check.state, "vain gave nothing but zeros" in check.advice) == ("warning", True)


@in_loop
async def test_a_text_that_the_model_dies_of_holds_nothing_up(desk: Desk) -> None:
    desk.publish(*TEXTS[:3], "a deadly flight to Moss at 10:40", *TEXTS[3:6], run="one")
    await desk.index()
    found = desk.read(*TEXTS[:6], "a deadly flight to Moss at 10:40")[0]
    assert found == [content_hash(text) for text in TEXTS[:6]]
    asked = len(desk.models["letters"].asked)
    await desk.index()
    assert len(desk.models["letters"].asked) == asked


@in_loop
async def test_two_indexers_do_no_harm_and_one_goes_on_for_the_other(desk: Desk) -> None:
    desk.publish(*TEXTS)
    async with desk.running(desk.indexer(batch=1), desk.indexer(batch=1)):
        await until(partial(desk.is_done, "letters"))
    assert sorted(desk.models["letters"].asked) == sorted(TEXTS)
    dead = asyncio.create_task(desk.indexer().run(asyncio.Event()))
    desk.publish("a flight at 10:40 before it dies")
    await until(partial(desk.is_done, "letters"))
    dead.cancel()
    await asyncio.gather(dead, return_exceptions=True)
    desk.publish("a flight at 11:55 after it died")
    await desk.index()
    assert len(desk.vectors()) == 12


@in_loop
async def test_tenants_have_vectors_of_their_own(desk: Desk) -> None:
    """Invariant 7: the same words in another organisation are looked up, and kept, apart."""
    desk.publish(TEXTS[0], org="acme")
    desk.publish(TEXTS[0], TEXTS[1], org="globex")
    await desk.index()
    assert len(desk.vectors(org="acme")) == 1 and len(desk.vectors(org="globex")) == 2
    assert desk.read(TEXTS[1], org="acme")[0] == []


@in_loop
async def test_a_sweep_finds_what_changed_unseen_and_forgets_what_is_gone(desk: Desk) -> None:
    desk.publish(*TEXTS[:6])
    await desk.index()
    lost, stray = content_hash(TEXTS[2]), content_hash("in no card any more")

    def spoil(conn: Connection) -> None:
        vectors.drop(conn, ORG, "letters", [lost])
        vectors.write(conn, ORG, "letters", [stray], np.ones((1, 26), dtype=np.float32))
        vectors.write(conn, "gone", "letters", [stray], np.ones((1, 26), dtype=np.float32))
        models.register(conn, "before", {}, 26)
        vectors.write(conn, ORG, "before", [stray], np.ones((1, 26), dtype=np.float32))

    desk.lab.log.write_now(spoil)

    async def is_whole() -> bool:
        def count(conn: Connection) -> int:
            return int(conn.execute(select(func.count()).select_from(schema.vectors)).scalar_one())

        there = desk.vectors()
        return lost in there and stray not in there and await desk.lab.log.read(count) == 6

    async with desk.running(desk.indexer(sweep_s=0.0)):
        await until(is_whole)
    assert desk.models["letters"].asked.count(TEXTS[2]) == 2


@in_loop
async def test_nothing_is_embedded_where_it_is_switched_off(desk: Desk) -> None:
    desk.publish(TEXTS[0])
    async with desk.running(desk.indexer("none")):
        await asyncio.sleep(0.5)
    assert desk.models == {} and desk.lab.log.read_now(read_stored) == []


@in_loop
async def test_a_backend_without_cards_has_nothing_to_index(lab: Lab) -> None:
    """A deployment may name read models of its own, and no cards among them."""
    desk = Desk(lab)
    desk.read_models = ReadModels([], lab.stores, lab.log)
    async with desk.running(desk.indexer()) as [running]:
        await asyncio.sleep(0.5)
        assert not running.done()
    assert desk.models == {}


@in_loop
async def test_secrets_reach_no_model(desk: Desk) -> None:
    """C21: neither the part before a dot nor the one after it, bare or within JSON within a text."""
    secret = "sk-xx-AAAA1111BBBB2222.cccc3333dddd_EEEE"
    told = [f"api_key: {secret}", '{"config": "{\\"api_key\\": \\"' + secret + '\\"}"}']
    for number, text in enumerate(told):
        desk.lab.archive(
            event("tool.called", f"c{number}", "keys", {"call_id": f"k{number}", "name": "read", "arguments": {}}),
            event("tool.returned", f"r{number}", "keys", {"call_id": f"k{number}", "result": f"host: db-7\n{text}"}),
        )
    fold(desk.lab)
    await desk.index()
    asked = "\n".join(desk.models["letters"].asked)
    assert "db-7" in asked
    assert "AAAA1111" not in asked and "cccc3333" not in asked
