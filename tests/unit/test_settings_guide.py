"""The page of settings lists every setting as it is: name, option, default, meaning."""

from __future__ import annotations

import ast
import inspect
from dataclasses import fields
from itertools import pairwise
from pathlib import Path

from services import settings
from services.settings import Settings

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "settings.md"


def meanings() -> dict[str, str]:
    """What stands under each field of ``Settings``, in one line."""
    tree = ast.parse(inspect.getsource(settings))
    body = next(node.body for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Settings")
    found = {}
    for field, below in pairwise(body):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(below, ast.Expr):
            assert isinstance(below.value, ast.Constant)
            found[field.target.id] = " ".join(str(below.value.value).split()).replace("``", "`")
    return found


def table() -> str:
    said = meanings()
    rows = ["| variable | option | default | meaning |", "|---|---|---|---|"]
    for field in fields(Settings):
        default = int(field.default) if isinstance(field.default, bool) else field.default
        option = f"`{field.metadata['option']}`" if field.metadata["option"] else ""
        shown = f"`{default}`" if str(default) else ""
        rows.append(f"| `{field.metadata['variable']}` | {option} | {shown} | {said[field.name]} |")
    return "\n".join(rows)


def test_every_setting_says_what_it_is() -> None:
    assert meanings().keys() == {field.name for field in fields(Settings)}


def test_the_page_lists_the_settings_as_they_are() -> None:
    assert table() in PAGE.read_text(), f"the table of {PAGE.name} should be:\n{table()}"


def test_the_page_names_what_clients_read() -> None:
    assert all(f"`{name}`" in PAGE.read_text() for name in settings._OF_CLIENTS)
