"""The graph of cards: followed both ways along uses and replacements, within bounds; and why a card exists."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import Connection, create_engine

from projections.cards.flows import places
from projections.memory_cards import MEMORY_CARDS
from projections.queries import card_graph as graphs
from projections.queries.card_graph import card_graph
from projections.queries.cards import card_document, cards_of_task
from tests.unit.card_story import Part, by_event, call, result, said, story
from tests.unit.fold_runner import Folded, fold

Stored = Callable[[Folded], Connection]

JOURNEY = (
    said("I need to get from Lisbon to Oslo"),  # e0
    call("c1", "search", {"from": "Lisbon"}), result("c1", {"trip_id": "TR-417", "price": 152}),  # e2
    call("c2", "seats", {"trip": "TR-417"}), result("c2", {"seat_row": "14C-9"}),  # e4
    ("decision.made", {"question": "which seat?", "chosen": "14C-9"}),  # e5
    call("c3", "book", {"trip": "TR-417", "seat": "14C-9"}, side_effect=True),
    result("c3", "Error: TR-417 is sold out"),  # e7
    call("c1b", "search", {"from": "Lisbon"}), result("c1b", {"trip_id": "TR-902", "price": 177}),  # e9
)  # fmt: skip


@pytest.fixture
def stored() -> Iterator[Stored]:
    engine = create_engine("sqlite://")

    def store(folded: Folded) -> Connection:
        for table in MEMORY_CARDS.tables:
            table.create(connection)
        folded.store(connection)
        return connection

    with engine.connect() as connection:
        yield store
    engine.dispose()


def told(graph: dict[str, Any], names: dict[str, str]) -> set[tuple[str, str, str]]:
    return {(names[edge["from"]], edge["kind"], names[edge["to"]]) for edge in graph["edges"]}


def test_links_are_followed_both_ways(stored: Stored) -> None:
    folded = fold(MEMORY_CARDS, story(*JOURNEY))
    conn = stored(folded)
    names = {card["card"]: card["event_id"] for card in folded.table("cards")}
    cards = {event: card["card"] for event, card in by_event(folded).items()}

    near = card_graph(conn, "default", cards["e2"], depth=1)
    assert near is not None
    assert told(near, names) == {
        ("e0", "used", "e2"), ("e2", "used", "e4"), ("e2", "used", "e7"), ("e2", "superseded_by", "e9"),
    }  # fmt: skip
    assert [names[node["card"]] for node in near["nodes"]] == ["e0", "e2", "e4", "e7", "e9"]
    assert not near["more"]

    far = card_graph(conn, "default", cards["e2"], depth=3)
    assert far is not None
    assert told(far, names) == told(near, names) | {
        ("e0", "used", "e9"), ("e4", "used", "e5"), ("e4", "used", "e7"), ("e5", "used", "e7"),
    }  # fmt: skip
    back = card_graph(conn, "default", cards["e7"], depth=1)
    assert back is not None
    assert told(back, names) == {("e2", "used", "e7"), ("e4", "used", "e7"), ("e5", "used", "e7")}
    assert [edge["values"] for edge in back["edges"] if names[edge["from"]] == "e4"] == [["14c-9"]]


def test_another_tenants_card_has_no_graph(stored: Stored) -> None:
    folded = fold(MEMORY_CARDS, story(*JOURNEY))
    conn = stored(folded)
    card = by_event(folded)["e2"]["card"]
    assert card_graph(conn, "other", card) is None
    assert card_graph(conn, "default", "nobody") is None


def test_a_large_graph_is_cut_and_says_so(stored: Stored, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphs, "MAX_NODES", 5)
    parts: list[Part] = [said("about AB-77")]
    for n in range(9):
        parts += [call(f"c{n}", "get", {"n": n, "id": "AB-77"}), result(f"c{n}", {"part": f"P-{n}00"})]
    folded = fold(MEMORY_CARDS, story(*parts))
    graph = card_graph(stored(folded), "default", by_event(folded)["e0"]["card"])
    assert graph is not None
    assert (len(graph["nodes"]), graph["more"]) == (5, True)
    kept = {node["card"] for node in graph["nodes"]}
    assert all(edge["from"] in kept and edge["to"] in kept for edge in graph["edges"])


def test_a_card_says_why_it_exists_and_what_it_replaced(stored: Stored) -> None:
    folded = fold(MEMORY_CARDS, story(*JOURNEY))
    conn = stored(folded)
    why = {card["event_id"]: card["why"] for card in cards_of_task(conn, "default", "t1", status="")}
    assert why["e2"] == ["used by 2 later calls or decisions", "told something new"]
    assert why["e7"] == ["rules something out: error", "came of a call that changes something", "told something new"]
    assert why["e5"] == ["used by 1 later call or decision", "a conclusion"]

    cards = {event: card["card"] for event, card in by_event(folded).items()}
    document = card_document(conn, "default", cards["e9"])
    assert document is not None
    assert document["supersedes"] == [cards["e2"]]
    replaced = card_document(conn, "default", cards["e2"])
    assert replaced is not None
    assert [use["links"] for use in replaced["used_by"]] == [
        [{"value": "tr-417", "field": "trip_id", "parameter": "trip"}]
    ] * 2


def test_a_value_tells_where_it_stood() -> None:
    value = fold(MEMORY_CARDS, story(*JOURNEY)).one("card_values", value="tr-417")
    first, *later = places(value["origins"])
    assert first == ("search", "trip_id") and [tool for tool, _ in later] == ["book"]
    assert value["uses"] == 2
