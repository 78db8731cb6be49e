"""Names of keys, and which types are written about a run by others."""

from __future__ import annotations

import re
from pathlib import Path

from events.log.layout import keys_of
from events.registry import EVENT_TYPES, FROM_OUTSIDE


def test_all_keys_of_a_partition_share_its_hash_tag() -> None:
    for partition in (0, 7, 1023):
        keys = keys_of(partition)
        assert {re.findall(r"\{(.+?)\}", key)[0] for key in keys} == {str(partition)}
        assert len(set(keys)) == len(keys)


def test_partitions_share_no_key() -> None:
    assert not set(keys_of(1)) & set(keys_of(11))


def test_what_others_tell_of_a_run_are_types_of_a_run() -> None:
    """A renamed type must not fall out of the exception unnoticed."""
    assert EVENT_TYPES.keys() >= FROM_OUTSIDE
    assert {EVENT_TYPES[name].keyed_by for name in FROM_OUTSIDE} <= {"task", "settlement", "feedback", "discarded"}


def test_no_script_asks_for_the_time() -> None:
    """C4: entries are numbered by epoch and count, whatever the server's clock does; only what is set aside is not."""
    scripts = sorted((Path(__file__).parents[2] / "events" / "log").glob("*.lua"))
    assert len(scripts) >= 6
    for script in scripts:
        text = script.read_text()
        assert not re.search(r"""['"]TIME['"]""", text, re.IGNORECASE)
        for added in re.findall(r"XADD', (\w+), ([^)]*)", text):
            assert added[0] == "FOREIGN" or "'-*'" in added[1]
