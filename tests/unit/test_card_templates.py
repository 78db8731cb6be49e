"""Templates from a file: errors that help, a fingerprint of their own, and folds in other processes."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from events.errors import SetupError
from projections.cards.reading.facts import facts_of
from projections.cards.templates import PLAIN, SHIPPED, Template, Templates
from projections.engine.share import is_portable
from projections.fingerprint import fingerprint
from projections.memory_cards import MEMORY_CARDS, memory_cards
from projections.registry import PROJECTIONS
from services.card_templates import projections_of, read_templates
from services.settings import Settings
from tests.unit.fold_runner import event, fold

YAML = """\
templates:
  - tool: get_order
    title: "Order {order_id}"
    fields: [status]
    names: {status: state}
    entity: order_id
    attribute: state
    ttl_s: 60
    refresh: look again
  - tool: get_*
    leave_out: [debug]
"""
ORDER = {"order_id": "ORD-7731", "status": "packed", "debug": "x1y2z3"}


def written(folder: Path, text: str, name: str = "t.yaml") -> Path:
    (folder / name).write_text(text)
    return folder / name


def test_the_first_that_fits_counts_and_a_name_before_a_pattern(tmp_path: Path) -> None:
    templates = read_templates(written(tmp_path, YAML))
    assert templates.of("get_order").title == "Order {order_id}"
    assert templates.of("get_user").leave_out == ("debug",)
    assert templates.of("list") is PLAIN and templates.of("") is PLAIN
    assert templates.of("bash").prose == "tail" == SHIPPED.of("bash").prose
    assert Templates([Template(tool="bash", prose="head")]).of("bash").prose == "head"


def test_json_says_the_same(tmp_path: Path) -> None:
    file = written(tmp_path, '{"templates": [{"tool": "bash", "prose": "head"}]}', "t.json")
    assert read_templates(file).of("bash").prose == "head"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("templates: [{tool: x, ttl_s: -1}]", "ttl_s"),
        ("templates: [{tool: x, titel: y}]", "unknown field `titel`"),
        ("templates: [{title: y}]", "missing required field `tool`"),
        ("templates: [{tool: x, prose: middle}]", "$.templates[0].prose"),
        ("templates: [", "t.yaml"),
        ("", "t.yaml"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(SetupError) as caught:
        read_templates(written(tmp_path, text))
    assert words in str(caught.value) and "t.yaml" in str(caught.value) and "\n" not in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r"none\.yaml: No such file"):
        read_templates(tmp_path / "none.yaml")


def test_only_the_cards_are_changed_and_only_where_a_file_is_named(tmp_path: Path) -> None:
    assert projections_of(Settings()) is PROJECTIONS
    configured = projections_of(Settings(card_templates=str(written(tmp_path, YAML))))
    assert {name for name in PROJECTIONS if configured[name] is not PROJECTIONS[name]} == {"memory_cards"}


def test_cards_of_a_registry_of_ones_own_take_their_templates_there(tmp_path: Path) -> None:
    settings = Settings(card_templates=str(written(tmp_path, YAML)), projections="tests.unit.test_card_templates:OWN")
    with pytest.raises(SetupError, match="a read model of its own"):
        projections_of(settings)


OWN = {**PROJECTIONS, "memory_cards": memory_cards(Templates([Template(tool="x", prose="head")]))}


def test_templates_are_part_of_the_fingerprint(tmp_path: Path) -> None:
    """C42: other templates make other rows, so a generation made with them is another."""
    one, same = (memory_cards(read_templates(written(tmp_path, YAML))) for _ in range(2))
    other = memory_cards(read_templates(written(tmp_path, YAML.replace("60", "61"))))
    assert fingerprint(one) == fingerprint(same)
    assert len({fingerprint(p) for p in (MEMORY_CARDS, one, other)}) == 3
    assert fingerprint(memory_cards(Templates())) == fingerprint(MEMORY_CARDS)


def test_a_fold_with_templates_can_be_handed_to_another_process(tmp_path: Path) -> None:
    projection = memory_cards(read_templates(written(tmp_path, YAML)))
    assert is_portable(projection)
    copy = pickle.loads(pickle.dumps(projection))
    assert fingerprint(copy) == fingerprint(projection)
    raws = [
        event("tool.called", 1, task="t", run="r", call_id="c1", name="get_order", arguments={"order_id": "ORD-7731"}),
        event("tool.returned", 2, task="t", run="r", call_id="c1", result=ORDER),
        event("tool.called", 3, task="t", run="r", call_id="c2", name="trace", arguments={"of": "x1y2z3"}),
    ]
    folded = [fold(one, raws) for one in (projection, copy)]
    assert folded[0].dump() == folded[1].dump()
    card = folded[0].one("cards", tool="get_order")
    assert card["entity"] == ["order_id", "ord-7731"] and card["attribute"] == "state"
    assert card["ttl_s"] == 60 and card["refresh"] == "look again"
    # the value that a later call used is shown, though the template leaves it out
    assert card["summary"] == "Order ORD-7731\nstate: packed; debug: x1y2z3"
    assert fold(MEMORY_CARDS, raws).one("cards", tool="get_order")["summary"] == (
        "order_id: ORD-7731; status: packed; debug: x1y2z3"
    )


def test_fields_in_a_title_need_not_be_shown_again() -> None:
    template = Template(tool="x", title="{a} of {b.c}")
    assert template.titled(facts_of({"a": 1, "b": {"c": 2}})) == "1 of 2"
    assert template.titled(facts_of({"a": 1})) == ""
