"""Rules of beliefs as a deployment sets them: from a file or in place, and what is wrong with them in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from events.errors import SetupError
from projections.queries.confidence import DEFAULT_RULES
from services.belief_rules import read_rules
from services.settings import Settings


def test_without_a_setting_the_defaults_hold() -> None:
    assert read_rules("") is DEFAULT_RULES


@pytest.mark.parametrize("name", ["", "rules.json", "rules.toml"])
def test_what_is_not_named_keeps_its_default(tmp_path: Path, name: str) -> None:
    text = '{"injected_above": 0.8, "half_life_days": {"tool_reliability": 14, "learning": null}}'
    if name.endswith(".toml"):
        text = "injected_above = 0.8\n[half_life_days]\ntool_reliability = 14\n"
    if name:
        (tmp_path / name).write_text(text)
        text = str(tmp_path / name)
    rules = read_rules(Settings.read({"REFOLD_BELIEF_RULES": text}).belief_rules)
    assert (rules.injected_above, rules.half_life_days["tool_reliability"], rules.prior) == (0.8, 14, 0.5)
    assert rules.half_life_days["plan_pattern"] == DEFAULT_RULES.half_life_days["plan_pattern"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"injected_above": 85}', "injected_above is a number from 0 to 1"),
        ('{"half_life_days": {"learning": -1}}', "half-life"),
        ('{"half_life_days": {"weather": 1}}', "weather"),
        ('{"prior_weight": 0}', "prior_weight"),
        ('{"demoting_failures": 99}', "from 1 to 8"),
        ('{"injected": 0.7}', "injected"),
        ('{"prior": NaN}', "REFOLD_BELIEF_RULES"),
        ("{", "REFOLD_BELIEF_RULES"),
        ("nowhere.json", "cannot be read"),
    ],
)
def test_what_is_no_rule_is_refused_in_one_line(text: str, said: str) -> None:
    """C35."""
    with pytest.raises(SetupError, match=said) as refused:
        read_rules(text)
    assert "\n" not in str(refused.value)
