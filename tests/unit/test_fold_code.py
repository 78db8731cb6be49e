"""Whose code made a read model: every change of a fold shows, however far down, and nothing else does."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from events.event import Recorded
from projections.fingerprint import fingerprint
from projections.fold_code import fold_code
from projections.projection import Change, Rows
from projections.registry import PROJECTIONS

ROOT = Path(__file__).parents[2]
PRINT_ALL = """
from projections.fingerprint import fingerprint
from projections.registry import PROJECTIONS
print(*(fingerprint(projection) for projection in PROJECTIONS.values()))
"""
TIME_ALL = """
import time
from projections.fold_code import fold_code
from projections.registry import PROJECTIONS
before = time.process_time()
for each in PROJECTIONS.values():
    fold_code(each.apply, each.names, each.key)
print(time.process_time() - before)
"""
PRINT_ONE = "from projections.fold_code import fold_code; from {} import apply; print(*fold_code(apply))"

COUNTING = """\
import json


def one_more(rows):
    return [rows + 1]  # more
"""
FOLD = {
    "counting.py": COUNTING,
    "tool_calls.py": """\
'Counts.'
from counting import one_more


def apply(recorded, rows):
    return one_more(rows)
""",
}
REWORDED = {
    "counting.py": """\
'''How to count.'''
import json

def one_more(rows):
  return [
    rows
    + 1
  ]
""",
    "tool_calls.py": """\
# Ours
from counting import one_more
def apply(recorded, rows):
  'One more.'
  return one_more(rows)""",
}
PACKAGED = {
    "ours/__init__.py": "",
    "ours/folds/calls.py": "from ..parts import counting\n\ndef apply(_, rows):\n    return counting.more(rows)\n",
    "ours/parts/__init__.py": "",
    "ours/parts/counting.py": "def more(rows):\n    from .steps import STEP\n    return [rows + STEP]\n",
    "ours/parts/steps.py": "STEP = 1\n",
    "ours/unrelated.py": "X = 1\n",
}


def run(code: str, path: Path, *, cwd: Path = ROOT, seed: str = "1") -> str:
    """What a new process prints."""
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join((str(path), str(ROOT))), "PYTHONHASHSEED": seed}
    done = subprocess.run(
        [sys.executable, "-B", "-c", code], check=True, capture_output=True, text=True, cwd=cwd, env=environ
    )
    return done.stdout.strip()


def digest(folder: Path, files: dict[str, str], module: str = "tool_calls") -> str:
    """The fold code of ``module`` in a folder with these files."""
    shutil.rmtree(folder, ignore_errors=True)
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    found = run(PRINT_ONE.format(module), folder, cwd=folder)
    assert found
    return found


def test_equal_in_every_process_hash_seed_and_folder(tmp_path: Path) -> None:
    here = " ".join(fingerprint(projection) for projection in PROJECTIONS.values())
    assert run(PRINT_ALL, ROOT, seed="2", cwd=tmp_path) == here
    assert run(PRINT_ALL, ROOT, seed="77") == here
    assert len(set(here.split())) == len(PROJECTIONS)


@pytest.mark.parametrize(
    ("file", "old", "new", "stale"),
    [
        ("projections/task/status.py", '"completed"', '"finished"', {"task_state"}),
        ("projections/cards/reading/values.py", "\ndef ", "\nLIMIT = 3\n\n\ndef ", {"memory_cards"}),
        ("projections/bounds.py", "\ndef ", "\ndef longer() -> None: ...\n\n\ndef ", set(PROJECTIONS)),
        ("projections/beliefs.py", "\ndef ", "\n# Whatever it is.\ndef ", set()),
        ("projections/engine/fold.py", "\nclass ", "\ndef other() -> None: ...\n\n\nclass ", set()),
        ("events/times.py", "\ndef ", "\ndef other() -> None: ...\n\n\ndef ", set()),
    ],
)
def test_a_shipped_fold_is_stale_with_what_it_is_made_of(
    file: str, old: str, new: str, stale: set[str], tmp_path: Path
) -> None:
    """C42: the fold's logic changes, its shape and version stay."""
    for package in ("events", "projections"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    text = (tmp_path / file).read_text()
    assert old in text
    (tmp_path / file).write_text(text.replace(old, new, 1))
    after = dict(zip(PROJECTIONS, run(PRINT_ALL, tmp_path, cwd=tmp_path).split(), strict=True))
    assert {name for name, projection in PROJECTIONS.items() if after[name] != fingerprint(projection)} == stale


def test_all_of_the_shipped_ones_are_read_quickly() -> None:
    """Five times what it took, since tests share a machine; and then it is asked at every look at generations."""
    assert float(run(TIME_ALL, ROOT)) < 0.3
    before = time.process_time()
    for projection in list(PROJECTIONS.values()) * 1000:
        fingerprint(projection)
    assert time.process_time() - before < 0.1


def test_what_does_not_change_the_meaning_changes_nothing(tmp_path: Path) -> None:
    first = digest(tmp_path / "a", FOLD)
    assert digest(tmp_path / "b", REWORDED) == first, "comments, docstrings, layout, another folder"
    assert digest(tmp_path / "a", {**FOLD, "stranger.py": "X = 2\n"}) == first


@pytest.mark.parametrize(
    ("helper", "old", "new"),
    [("counting.py", "+ 1", "+ 2"), ("tool_calls.py", "(rows)\n", "(rows)[:1]\n"), ("counting.py", "json", "math")],
)
def test_a_changed_body_shows(helper: str, old: str, new: str, tmp_path: Path) -> None:
    changed = {**FOLD, helper: FOLD[helper].replace(old, new)}
    assert changed != FOLD
    assert digest(tmp_path / "a", changed) != digest(tmp_path / "b", FOLD)


def test_a_helper_package_beside_the_fold_counts_and_refolds_own_packages_do_not(tmp_path: Path) -> None:
    """A deployment's folder may be Refold's own checkout."""
    files = {
        "tool_calls.py": FOLD["tool_calls.py"].replace("from counting", "from events import times\nfrom counting.deep"),
        "counting/__init__.py": "",
        "counting/deep.py": COUNTING,
        "events/__init__.py": "",
        "events/times.py": "X = 1\n",
    }
    first = digest(tmp_path / "a", files)
    assert digest(tmp_path / "a", {**files, "events/times.py": "X = 2\n"}) == first
    assert digest(tmp_path / "a", {**files, "counting/deep.py": COUNTING.replace("+ 1", "+ 2")}) != first


@pytest.mark.parametrize(
    ("file", "text", "same"),
    [
        ("ours/parts/steps.py", "STEP = 2\n", False),
        ("ours/parts/counting.py", PACKAGED["ours/parts/counting.py"].replace("+", "-"), False),
        ("ours/parts/__init__.py", "Y = 1\n", True),
        ("ours/unrelated.py", "X = 2\n", True),
    ],
)
def test_a_package_is_followed_through_relative_and_late_imports(
    file: str, text: str, same: bool, tmp_path: Path
) -> None:
    """A package's own file counts only where something is taken from it."""
    first = digest(tmp_path / "a", PACKAGED, "ours.folds.calls")
    assert (digest(tmp_path / "b", {**PACKAGED, file: text}, "ours.folds.calls") == first) == same


def test_what_is_taken_from_a_package_itself_counts(tmp_path: Path) -> None:
    files = {
        **PACKAGED,
        "ours/folds/calls.py": "from ours.parts import more\n\ndef apply(_, rows):\n    return more()\n",
    }
    init = "from .counting import more\nfrom .steps import STEP\n"
    first = digest(tmp_path / "a", {**files, "ours/parts/__init__.py": init}, "ours.folds.calls")
    more = digest(tmp_path / "b", {**files, "ours/parts/__init__.py": init + "Y = 1\n"}, "ours.folds.calls")
    deeper = {**files, "ours/parts/__init__.py": init, "ours/parts/steps.py": "STEP = 2\n"}
    assert len({first, more, digest(tmp_path / "c", deeper, "ours.folds.calls")}) == 3


def test_what_is_only_mentioned_is_read_and_not_run(tmp_path: Path) -> None:
    """An import within a function may be for another day, or do what nobody wants done here."""
    ran = "from pathlib import Path\nPath(__file__).with_suffix('.ran').touch()\nSTEP = 1\n"
    first = digest(tmp_path / "a", {**PACKAGED, "ours/parts/steps.py": ran}, "ours.folds.calls")
    assert not list(tmp_path.rglob("*.ran"))
    changed = {**PACKAGED, "ours/parts/steps.py": ran.replace("1", "2")}
    assert digest(tmp_path / "b", changed, "ours.folds.calls") != first


def test_refolds_own_parts_count_for_somebody_elses_fold(tmp_path: Path) -> None:
    """A fold that wraps a shipped one is made of that one's code, too."""
    files = {
        "tool_calls.py": "from projections.bounds import short\n\ndef apply(_, rows):\n    return short(rows)\n",
        "projections/__init__.py": "",
        "projections/fold_code.py": (ROOT / "projections/fold_code.py").read_text(),
        "projections/bounds.py": "def short(rows):\n    return rows\n",
    }
    first = digest(tmp_path / "a", files)
    assert (
        digest(tmp_path / "a", {**files, "projections/bounds.py": "def short(rows):\n    return rows[:1]\n"}) != first
    )


def test_a_fold_in_the_main_module(tmp_path: Path) -> None:
    def main(name: str, counting: str) -> str:
        folder = tmp_path / name
        folder.mkdir()
        (folder / "counting.py").write_text(counting)
        (folder / "script.py").write_text(FOLD["tool_calls.py"] + PRINT_ONE.format("__main__") + "\n")
        environ = {**os.environ, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-B", "script.py"]
        return subprocess.run(command, check=True, capture_output=True, text=True, cwd=folder, env=environ).stdout

    first = main("a", COUNTING)
    assert main("b", COUNTING.replace("+ 1", "+ 2")) != first
    assert main("c", REWORDED["counting.py"]) == first


def test_a_fold_without_source_is_its_bytecode() -> None:
    """Typed at a prompt, say: constants, names and what it does, but not where it stands, nor the order in a set."""

    def typed(text: str, seed: str = "1") -> str:
        code = f"exec({text!r})\nfrom projections.fold_code import fold_code\nprint(*fold_code(apply))"
        return run(code, ROOT, seed=seed)

    fold = "def apply(r, rows):\n    return [rows + 1] if r in {'a', 'b', 'c'} else (lambda: rows.x)()"
    first = typed(fold)
    assert typed("\n\n" + fold, seed="3") == first
    others = {typed(fold.replace(*change)) for change in (("1", "2"), (".x", ".y"), ("+", "-"))}
    assert len(others | {first}) == 4


def _apply(recorded: Recorded, rows: Rows) -> Iterable[Change]:
    return ()


class Folding:
    """A fold may be any callable."""

    def __call__(self, recorded: Recorded, rows: Rows) -> Iterable[Change]:
        return ()

    def method(self, recorded: Recorded, rows: Rows) -> Iterable[Change]:
        return ()


def test_whatever_can_be_called_leads_to_its_module() -> None:
    ours = fold_code(_apply)
    assert ours == fold_code(partial(_apply)) == fold_code(Folding()) == fold_code(Folding().method)
    assert fold_code(len) == []


def test_a_decorators_own_code_counts_wherever_it_says_that_it_is() -> None:
    shipped = PROJECTIONS["task_state"].apply

    def wrapper(recorded: Recorded, rows: Rows) -> Iterable[Change]:
        return shipped(recorded, rows)

    wrapper.__wrapped__, wrapper.__module__ = shipped, shipped.__module__  # type: ignore[attr-defined]
    assert fold_code(wrapper) == sorted(fold_code(_apply) + fold_code(shipped))


def test_another_version_of_the_same_code_is_another_one() -> None:
    """What a deployment does to try a change out: a copy with another version."""
    shipped = PROJECTIONS["task_state"]
    assert fingerprint(replace(shipped, version=shipped.version + 1)) != fingerprint(shipped)
    assert fingerprint(replace(shipped)) == fingerprint(shipped)
    assert fingerprint(replace(shipped, apply=_apply)) != fingerprint(shipped)
