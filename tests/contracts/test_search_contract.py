"""Searching what a store holds: never behind ``after``, never beyond its scope, whatever happens to the read model."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

from events.archive.store import log_id
from events.database import Stores
from events.errors import Refused
from events.event import Event, Position
from events.tokens import write_token
from projections import generations
from projections.engine.birth import ensure_first_generation
from projections.engine.folder import PartitionFolder
from projections.engine.source import ArchiveSource
from projections.engine.store import GenerationStore
from projections.memory_cards import MEMORY_CARDS
from projections.read_models import ReadModels
from projections.rebuilding.rebuild import rebuild
from projections.retrieval import models, vectors
from projections.retrieval.query import CardQuery, Scope
from projections.retrieval.text import content_hash, passages
from projections.retrieval.words import words
from services.embedding.queries import QueryVector
from services.searching.scopes import ScopeIndexes
from services.searching.search import Answer, Searcher
from tests.contracts.engine_lab import PARTITIONS, Lab, event, where
from tests.coroutines import in_loop

NAMES = iter(range(1_000_000))
ME = Scope("default", user="me")


@pytest.fixture
def lab(stores: Stores) -> Iterator[Lab]:
    lab = Lab(stores)
    ensure_first_generation(MEMORY_CARDS, lab.stores, lab.log, "test")
    yield lab
    lab.log.close()


class Desk:
    """A searcher on a lab, as one process has it, with a model that knows words alone: "bag"."""

    def __init__(self, lab: Lab, *, max_bytes: int = 1 << 30, max_cards: int = 10_000) -> None:
        self.lab = lab
        self.models = ReadModels([MEMORY_CARDS], lab.stores, lab.log)
        self.indexes = ScopeIndexes(self.models, lab.log, max_bytes=max_bytes, max_cards=max_cards, timeout_s=10)
        self.searcher = Searcher(self.models, self.indexes, self.of_query)

    async def of_query(self, text: str) -> QueryVector:
        return QueryVector("bag", bag(text)) if text else QueryVector("bag", None, "the query is empty")

    async def search(self, text: str, scope: Scope = ME, after: str = "", **asked: Any) -> Answer:
        return await self.searcher.search(CardQuery(text=text, scope=scope, **asked), after or None, now_s=1.8e9)


def bag(text: str) -> np.ndarray:
    """A vector of length 1 by the words of a text."""
    raw = np.zeros(64, dtype=np.float32)
    for word in words(text):
        raw[sum(word.encode()) % 64] += 1
    return raw / max(float(np.linalg.norm(raw)), 1e-9)


def said(text: str, *, task: str = "t1", user: str = "me", **envelope: Any) -> Event:
    return event("message.added", f"e{next(NAMES)}", task, {"role": "user", "content": text}, user=user, **envelope)


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


class Owner:
    """Folds without changing hands in between, as a projector does."""

    def __init__(self, lab: Lab) -> None:
        active = lab.log.read_now(partial(generations.active, projection=MEMORY_CARDS.name))
        assert active is not None
        self.store = GenerationStore(MEMORY_CARDS, lab.stores.generation(active.name))
        source = ArchiveSource(lab.log)
        self.folders = [PartitionFolder.take_over(self.store, source, p, "test", batch=100) for p in range(PARTITIONS)]

    def fold(self) -> None:
        for folder in self.folders:
            while folder.step().read:
                pass

    def close(self) -> None:
        for folder in self.folders:
            folder.hand_over()
        self.store.db.close()


def token(lab: Lab, events: list[Event], positions: list[Position]) -> str:
    places = [(where(each.task, each.org), position) for each, position in zip(events, positions, strict=True)]
    return write_token(places, lab.log.read_now(log_id))


def embed(lab: Lab, texts: list[str], model: str = "bag") -> None:
    """Vectors of messages, as the indexer would write them."""
    told = [passage for text in texts for passage in passages({"summary": text})]

    def work(conn: Any) -> None:
        models.register(conn, model, {}, 64)
        vectors.write(conn, "default", model, [content_hash(one) for one in told], np.stack([bag(one) for one in told]))
        models.count_written(conn, model, len(told))

    lab.log.write_now(work)


def summaries(answer: Answer) -> list[str]:
    return [item["summary"] for item in answer.items]


@in_loop
async def test_a_search_after_a_token_holds_what_was_published(lab: Lab) -> None:
    desk, owner = Desk(lab), Owner(lab)
    try:
        assert (await desk.search("window")).items == []
        for number in range(12):
            events = [said(f"a window seat in row {number}", task=f"t{number % 5}")]
            positions = lab.archive(*events)
            searching = asyncio.create_task(desk.search("window seat", after=token(lab, events, positions), top_k=50))
            await asyncio.sleep(0)
            await asyncio.to_thread(owner.fold)
            answer = await searching
            assert answer.note["reached"] and answer.total == number + 1
            assert f"a window seat in row {number}" in summaries(answer)
    finally:
        owner.close()
        desk.models.close()


@in_loop
async def test_an_index_kept_up_to_date_answers_as_a_new_one(lab: Lab) -> None:
    """Cards that come, change and are superseded one after another; hands that change; a rebuild that swaps."""
    desk = Desk(lab)
    story = [
        [said("I live in Oslo")],
        [
            event(
                "tool.called", "c1", "t2", {"call_id": "k1", "name": "get_order", "arguments": {"id": "W42"}}, user="me"
            )
        ],
        [event("tool.returned", "c2", "t2", {"call_id": "k1", "result": {"order_id": "W42", "price": 220}}, user="me")],
        [said("the order W42 is late", task="t2"), said("I live in Rome now", task="t3")],
        [event("tool.returned", "c4", "t2", {"call_id": "k2", "result": {"order_id": "W42", "price": 230}}, user="me")],
    ]
    try:
        for events in story:
            lab.archive(*events)
            fold(lab)
            await desk.search("order")
        before = await every_answer(desk)
        assert before == await every_answer(Desk(lab))
        await asyncio.to_thread(rebuild, MEMORY_CARDS, lab.stores, lab.log)
        assert await every_answer(desk) == before
        active = lab.log.read_now(partial(generations.active, projection=MEMORY_CARDS.name))
        assert active is not None and active.number == 2
    finally:
        desk.models.close()


async def every_answer(desk: Desk) -> str:
    """Answers to several searches as bytes, without the name of the generation."""
    told = []
    for text in ("", "order", "W42", "where do I live", "price 230", "座位"):
        answer = await desk.search(text, status="any", top_k=100, explain=True)
        told.append([answer.items, answer.total, answer.model])
    return json.dumps(told)


@in_loop
async def test_no_word_of_another_tenant_changes_a_byte(lab: Lab) -> None:
    """Another org, another user; the same words, rarer ones, vectors, ids, tasks of the same name."""
    embed(lab, ["I want a window seat", "the price of W42", "靠窗的座位"])
    lab.archive(said("I want a window seat"), said("the price of W42", task="t2"), said("靠窗的座位", task="t3"))
    fold(lab)
    desk = Desk(lab)
    mine = await every_answer(desk)
    for number in range(8):
        for envelope in ({"org": "rival"}, {"user": "you"}, {"org": "rival", "user": "me"}):
            words_of_all = f"window price W42 W4{number} 座位 order where do I live {number}"
            lab.archive(said(words_of_all, task=f"t{number % 4}", **envelope))
    embed(lab, ["window price", "座位"], model="bag")
    fold(lab)
    try:
        assert await every_answer(desk) == mine
        assert await every_answer(Desk(lab)) == mine
        assert (await desk.search("window", Scope("nobody"))).items == []
        whole = await desk.search("window", Scope("default"), top_k=100)
        assert {item["user"] for item in whole.items} == {"me", "you"}
    finally:
        desk.models.close()


@in_loop
async def test_vectors_count_as_soon_as_they_are_there_and_a_model_takes_the_place_of_another(lab: Lab) -> None:
    """C17."""
    texts = ["I want a window seat", "I want an aisle seat", "I want a table in Rome"]
    lab.archive(*(said(text, task=f"t{number}") for number, text in enumerate(texts)))
    fold(lab)
    desk = Desk(lab)
    try:
        bare = await desk.search("window", explain=True)
        assert bare.model == "" and "embedding" not in bare.items[0]["signals"]
        embed(lab, texts)
        full = await desk.search("window", explain=True)
        assert full.model == "bag" and full.items[0]["signals"]["embedding"] > 0
        lab.log.write_now(lambda conn: models.register(conn, "other", {}, 3))
        lab.log.write_now(lambda conn: models.activate(conn, "other"))
        other = await desk.search("window", explain=True)
        assert other.model == "" and "other" in other.why and summaries(other)[0] == "I want a window seat"
    finally:
        desk.models.close()


@in_loop
async def test_scopes_are_intersections_and_give_way_to_each_other(lab: Lab) -> None:
    for number in range(20):
        who = {"user": f"u{number % 4}", "agent": f"a{number % 2}", "session": f"s{number % 5}"}
        lab.archive(said(f"I sit on seat number {number}", task=f"t{number % 3}", **who))
    fold(lab)
    desk = Desk(lab, max_bytes=1)
    try:
        for scope in (
            Scope("default", user="u1"),
            Scope("default", agent="a1", session="s1"),
            Scope("default", task="t2"),
        ):
            wanted = {name: value for name, value in scope._asdict().items() if value and name != "org"}
            answer = await desk.search("seat", scope, top_k=50)
            assert answer.items and all(item[name] == value for item in answer.items for name, value in wanted.items())
            assert answer.total == len(answer.items)
            alone = desk.indexes.bytes
            assert 0 < alone < 100_000, "the others were let go"
        small = Desk(lab, max_cards=3)
        assert (await small.search("seat", Scope("default", session="s1", user="u1"))).total == 1
        with pytest.raises(Refused) as refused:
            await small.search("seat", Scope("default"))
        assert refused.value.code == "scope_too_large"
    finally:
        desk.models.close()


@in_loop
async def test_pages_and_token_budgets_cut_one_order(lab: Lab) -> None:
    lab.archive(*(said(f"seat number {number} of the hall", task=f"t{number}") for number in range(23)))
    fold(lab)
    desk = Desk(lab)
    try:
        whole = summaries(await desk.search("seat", top_k=50))
        pages: list[str] = []
        while len(pages) < 23:
            page = await desk.search("seat", top_k=5, offset=len(pages))
            pages += summaries(page)
            assert page.more is (len(pages) < 23)
        assert pages == whole
        few = await desk.search("seat", top_k=50, max_tokens=20)
        assert 0 < len(few.items) < 5 and summaries(few) == whole[: len(few.items)] and few.more
    finally:
        desk.models.close()


@in_loop
async def test_many_at_once_get_the_answer_of_one(lab: Lab) -> None:
    lab.archive(*(said(f"I sit on seat number {number}", task=f"t{number}") for number in range(50)))
    fold(lab)
    desk = Desk(lab)
    try:
        answers = await asyncio.gather(*(desk.search("seat", explain=True) for _ in range(20)))
        assert len({json.dumps(answer.items) for answer in answers}) == 1 and answers[0].total == 50
    finally:
        desk.models.close()


@in_loop
async def test_a_search_that_is_given_up_leaves_the_next_ones_right(lab: Lab) -> None:
    """Given up at any moment: while cards are taken in, while vectors are."""
    texts = [f"I sit on seat number {number}" for number in range(60)]
    lab.archive(*(said(text, task=f"t{number}") for number, text in enumerate(texts)))
    fold(lab)
    embed(lab, texts)
    desk = Desk(lab)
    try:
        right = (await Desk(lab).search("seat", top_k=100, explain=True)).items
        for pause_s in (0.0, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032):
            searching = asyncio.create_task(desk.search("seat", top_k=100))
            await asyncio.sleep(pause_s)
            searching.cancel()
            await asyncio.gather(searching, return_exceptions=True)
        assert (await desk.search("seat", top_k=100, explain=True)).items == right
    finally:
        desk.models.close()
