"""The store of LangGraph on a running instance: it answers as LangGraph's own store in memory does."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest
from langgraph.store.base import GetOp, InvalidNamespaceError, ListNamespacesOp, MatchCondition, Op, PutOp, SearchOp
from langgraph.store.memory import InMemoryStore
from refold import Unavailable
from refold.ids import canonical
from refold.integrations.langgraph import RefoldStore
from refold.integrations.langgraph.matching import fits

from tests.instance import Instance, running_instance

VALUES = (
    {"kind": "fact", "n": 1, "deep": {"x": [1, 2]}},
    {"kind": "fact", "n": 2.5, "deep": {"x": []}},
    {"kind": "rule", "n": -3, "text": "日本語"},
    {},
)
PATHS = (("a",), ("a", "b"), ("a", "b", "c"), ("a", "bc"), ("z", "b"))
FILTERS: tuple[dict[str, Any] | None, ...] = (
    None,
    {"kind": "fact"},
    {"kind": {"$ne": "fact"}},
    {"deep": {"x": [1, 2]}},
    {"kind": "fact", "n": {"$gt": 1}},
    {"kind": {"$eq": "rule"}},
)
CONDITIONS = (
    None,
    (MatchCondition("prefix", ("a",)),),
    (MatchCondition("prefix", ("a", "*")), MatchCondition("suffix", ("b",))),
    (MatchCondition("suffix", ("*", "c")),),
)


def some_op(chance: Random, *, put: bool) -> Op:
    path, key = chance.choice(PATHS), chance.choice(["k1", "k2", "ключ"])
    if put:
        return PutOp(path, key, chance.choice([*VALUES, None]))
    return chance.choice(
        [
            GetOp(path, key),
            SearchOp(chance.choice([(), *PATHS]), chance.choice(FILTERS), 100),
            ListNamespacesOp(chance.choice(CONDITIONS), chance.choice([None, 1, 2])),
        ]
    )


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    with running_instance(tmp_path_factory.mktemp("store") / "data") as running:
        yield running


@pytest.fixture
def store(instance: Instance) -> Iterator[RefoldStore]:
    with RefoldStore(instance.url, org=instance.name("org")) as opened:
        yield opened


def shown(op: Op, result: Any) -> Any:
    """What both stores promise: not the order of a search or of a value's members, nor the moment of a put."""
    match op:
        case GetOp():
            return result and (result.namespace, result.key, result.value)
        case SearchOp():
            return sorted(canonical([item.namespace, item.key, item.value]) for item in result)
        case _:
            return result


def alive(memory: InMemoryStore) -> InMemoryStore:
    """A copy that has forgotten which namespaces are empty: the original lists them, too."""
    copy = InMemoryStore()
    copy.batch([PutOp(item.namespace, item.key, item.value) for item in memory.search((), limit=1000)])
    return copy


def test_it_answers_as_the_store_in_memory(store: RefoldStore) -> None:
    chance, memory = Random(7), InMemoryStore()
    for _ in range(8):
        puts = [some_op(chance, put=True) for _ in range(6)]
        gets = [op for op in (some_op(chance, put=False) for _ in range(9)) if isinstance(op, GetOp)]
        # of one batch, reads see what was there before
        assert list(map(shown, gets, store.batch([*puts, *gets])[6:])) == list(
            map(shown, gets, memory.batch([*puts, *gets])[6:])
        )
        for op in (some_op(chance, put=False) for _ in range(6)):
            [mine], [theirs] = store.batch([op]), alive(memory).batch([op])
            assert shown(op, mine) == shown(op, theirs), op


def test_an_item_lives_and_dies(store: RefoldStore) -> None:
    before = datetime.now(UTC) - timedelta(seconds=1)
    store.put(("users", "ada"), "units", {"system": "imperial"})
    first = store.get(("users", "ada"), "units")
    store.put(("users", "ada"), "units", {"system": "metric"})
    second = store.get(("users", "ada"), "units")
    assert first is not None and second is not None
    assert second.value == {"system": "metric"}
    assert before < first.created_at == second.created_at <= first.updated_at < second.updated_at
    store.delete(("users", "ada"), "units")
    assert store.get(("users", "ada"), "units") is None
    assert store.list_namespaces() == []


def test_async_methods_do_the_same(store: RefoldStore) -> None:
    async def live() -> None:
        await asyncio.gather(*(store.aput(("many", f"n{n % 3}"), f"k{n:02}", {"n": n}) for n in range(30)))
        assert [item.value["n"] for item in await store.asearch(("many",), filter={"n": {"$gte": 28}})] in (
            [28, 29], [29, 28],
        )  # fmt: skip
        found = await store.aget(("many", "n1"), "k01")
        assert found is not None and found.value == {"n": 1}
        assert await store.alist_namespaces(prefix=("many",)) == [("many", "n0"), ("many", "n1"), ("many", "n2")]
        await store.adelete(("many", "n1"), "k01")
        assert await store.aget(("many", "n1"), "k01") is None

    asyncio.run(live())


def test_searches_come_latest_first_by_limit_and_offset(store: RefoldStore) -> None:
    store.batch([PutOp(("l",), f"k{n:03}", {"n": n, "even": n % 2 == 0}) for n in range(130)])
    store.put(("l",), "k000", {"n": 0, "even": True})
    assert store.search(("l",), limit=1)[0].key == "k000"
    everything = store.search(("l",), limit=1000)
    assert len(everything) == 130
    even = [item.key for item in everything if item.value["even"]]
    assert [item.key for item in store.search(("l",), filter={"even": True}, limit=10, offset=50)] == even[50:60]


def test_orgs_are_walls(instance: Instance, store: RefoldStore) -> None:
    store.put(("secret",), "k", {"a": 1})
    with RefoldStore(instance.url, org=instance.name("org")) as theirs:
        assert theirs.get(("secret",), "k") is None
        assert theirs.search(()) == [] and theirs.list_namespaces() == []
        theirs.delete(("secret",), "k")
    assert store.get(("secret",), "k") is not None


def test_what_it_cannot_do_it_says(store: RefoldStore) -> None:
    with pytest.raises(NotImplementedError, match="no search by meaning"):
        store.search(("a",), query="what does she like?")
    with pytest.raises(NotImplementedError, match="TTL"):
        store.put(("a",), "k", {"a": 1}, ttl=5)
    with pytest.raises(InvalidNamespaceError):
        store.put((), "k", {"a": 1})
    with pytest.raises(ValueError, match="no JSON object"):
        store.put(("a",), "k", {"a": object()})
    with pytest.raises(ValueError, match="infinite"):
        store.put(("a",), "k", {"a": [{"b": float("nan")}]})
    with pytest.raises(ValueError, match="at most 240"):
        store.put(("a" * 241,), "k", {"a": 1})
    with RefoldStore("http://127.0.0.1:9", timeout_s=0.5) as lost, pytest.raises(Unavailable, match="refold up"):
        lost.put(("a",), "k", {"a": 1})


@pytest.mark.parametrize(
    ("filter", "holds"),
    [
        ({"n": {"$gt": 4}}, True), ({"n": {"$gt": 5}}, False), ({"n": {"$gte": 5, "$lt": 6}}, True),
        ({"s": {"$lt": "b"}}, True), ({"s": {"$gt": 1}}, False), ({"gone": {"$gt": 1}}, False), ({"gone": None}, True),
        ({"s": {"$ne": "a"}}, False), ({"deep": {"x": 1}}, True), ({"deep": {"x": {"$lte": 0}}}, False),
        ({"list": [1, {"$gt": 1}]}, True), ({"list": [1]}, False), ({"flag": {"$gt": 0}}, False), ({"n": 5.0}, True),
    ],
)  # fmt: skip
def test_filters(filter: dict[str, Any], holds: bool) -> None:
    value = {"n": 5, "s": "a", "deep": {"x": 1, "y": 2}, "list": [1, 2], "flag": True}
    assert fits(value, filter) is holds


def test_an_unknown_operator_is_named() -> None:
    with pytest.raises(ValueError, match=r"\$like.*\$eq"):
        fits({"a": "b"}, {"a": {"$like": "b"}})
