"""The tree keeps its shape: who imports whom, what a fold may see, how long a piece grows, no trace of one machine."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("events", "projections", "services", "migrations", "sdk/python/refold")

MAX_FILE_LINES = 420
MAX_FUNCTION_LINES = 45

IMPURE_MODULES = {
    "asyncio", "concurrent", "httpx", "io", "locale", "logging", "multiprocessing", "os", "pathlib", "psycopg",
    "random", "redis", "secrets", "signal", "socket", "sqlite3", "subprocess", "threading", "time", "urllib",
}  # fmt: skip
IMPURE_NAMES = {
    "uuid1",
    "uuid4",
    "Connection",
    "Engine",
    "Session",
    "create_engine",
    "select",
    "insert",
    "update",
    "delete",
    "func",
}
IMPURE_CALLS = {"now", "utcnow", "today", "uuid1", "uuid4", "getenv", "urandom"}
IMPURE_BUILTINS = {"hash", "id", "open", "input", "print", "globals"}


def sources(*packages: str) -> list[Path]:
    return sorted(path for package in packages for path in (ROOT / package).rglob("*.py"))


def test_the_import_contracts_hold() -> None:
    """services -> projections -> events; the SDK stands alone."""
    tool = Path(sys.executable).parent / "lint-imports"
    done = subprocess.run([tool, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


# --- folds are pure --------------------------------------------------------------------------------------------------


def impurities(source: str) -> Iterator[str]:
    """What a fold may not see: clocks, chance, stores, the outside, and hashes that differ between processes."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                modules = [alias.name for alias in names]
            case ast.ImportFrom(module=module, names=names):
                modules = [module or ""]
                yield from (f"{alias.name} of {module}" for alias in names if alias.name in IMPURE_NAMES)
            case ast.Call(func=ast.Attribute(attr=name)) if name in IMPURE_CALLS:
                yield f".{name}() in line {node.lineno}"
                continue
            case ast.Call(func=ast.Name(id=name)) if name in IMPURE_BUILTINS | IMPURE_CALLS:
                yield f"{name}() in line {node.lineno}"
                continue
            case _:
                continue
        yield from (name for name in modules if name.partition(".")[0] in IMPURE_MODULES)


def imported(source: str) -> Iterator[str]:
    """The modules that a source names, with the names it takes from them (which may be modules too)."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def file_of(module: str) -> Path | None:
    """Our source of a module, if it is one of ours."""
    path = ROOT.joinpath(*module.split("."))
    candidates = (path.with_suffix(".py"), path / "__init__.py")
    return next((file for file in candidates if file.is_file()), None)


def fold_sources() -> dict[Path, str]:
    """Every file that defines a ``Projection(...)`` value, and every file of ours that those import."""
    found: dict[Path, str] = {}
    waiting = [
        path for path in sources("projections") if re.search(r"^\w+(: \w+)? = Projection\(", path.read_text(), re.M)
    ]
    while waiting:
        path = waiting.pop()
        if path not in found:
            found[path] = path.read_text()
            waiting += [file for name in imported(found[path]) if (file := file_of(name)) is not None]
    return found


def test_the_read_models_are_found() -> None:
    names = {path.stem for path in fold_sources()}
    assert {"task_state", "memory_cards", "settlements", "beliefs", "projection", "event"} <= names
    assert not {"database", "door", "publisher", "api"} & names


def test_folds_and_all_that_they_import_are_pure() -> None:
    """Invariant 3: a read model is a function of the log alone."""
    found = {str(path.relative_to(ROOT)): list(impurities(source)) for path, source in fold_sources().items()}
    assert {path: what for path, what in found.items() if what} == {}


@pytest.mark.parametrize(
    "line",
    ["import time", "from random import choice", "import redis.asyncio", "from sqlalchemy import Connection",
     "x = datetime.now(UTC)", "x = hash('a')", "x = uuid4()", "from os import environ", "from uuid import uuid4"],
)  # fmt: skip
def test_the_purity_check_sees(line: str) -> None:
    assert list(impurities(line))


def test_the_purity_check_lets_values_be() -> None:
    assert not list(impurities("from sqlalchemy import Column, Text\nx = key(event)\ny = {}.get('now')\n"))


# --- the map -----------------------------------------------------------------


MAPPED = ("events", "projections", "services", "sdk/python/refold", "tests")
UNMAPPED = {"__init__.py", "__pycache__", "py.typed", "conftest.py"}


def named_on_the_map() -> dict[str, set[str]]:
    """For each folder that a section of docs/architecture.md is about, what its table names."""
    named: dict[str, set[str]] = {}
    for section in (ROOT / "docs" / "architecture.md").read_text().split("\n## ")[1:]:
        folder = section.split(" ")[0].rstrip("/")
        rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
        if rows:
            named[folder] = {name.rstrip("/") for row in rows for name in re.findall(r"`([\w/.]+)`", row)}
    return named


def test_the_map_names_what_is_there_and_nothing_else() -> None:
    """docs/architecture.md is true to the tree: every module and package, one level deep."""
    named = named_on_the_map()
    assert tuple(named) == MAPPED
    for folder in MAPPED[:-1]:
        assert named[folder] == {path.name for path in (ROOT / folder).iterdir()} - UNMAPPED, folder
    assert [name for name in named["tests"] if not (ROOT / "tests" / name).is_dir()] == []


def test_what_the_map_tells_in_words_is_there() -> None:
    """Paths in its prose, too."""
    told = re.findall(
        r"`((?:events|projections|services|sdk|tests)/[\w/.]+)`", (ROOT / "docs/architecture.md").read_text()
    )
    assert len(told) >= 20
    assert [path for path in told if not (ROOT / path).exists()] == []


# --- size ------------------------------------------------------------------------------------------------------------


def code_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of a function from ``def`` on, its docstring apart."""
    first = function.body[0]
    documented = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    docstring = (first.end_lineno or 0) - first.lineno + 1 if documented else 0
    return (function.end_lineno or 0) - function.lineno + 1 - docstring


def test_files_and_functions_stay_readable() -> None:
    long: dict[str, int] = {}
    for path in sources(*PACKAGES):
        text = path.read_text()
        name = str(path.relative_to(ROOT))
        if (lines := text.count("\n")) > MAX_FILE_LINES:
            long[name] = lines
        if path.parent.name == "versions":
            continue  # a migration lists what it makes, from top to bottom
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and code_lines(node) > MAX_FUNCTION_LINES:
                long[f"{name}:{node.name}"] = code_lines(node)
    assert long == {}


def test_test_files_have_names_of_their_own() -> None:
    names = [path.name for path in sources("tests") if path.name.startswith("test_")]
    assert sorted(names) == sorted(set(names))


# --- no trace of one machine -----------------------------------------------------------------------------------------

MACHINE = re.compile("|".join(["/" + place for place in (r"root\b", r"work/", r"home/\w", r"Users/\w", r"opt/\w")]))
WRITTEN = {".py", ".toml", ".txt", ".md", ".yml", ".yaml", ".cfg", ".ini", ".sh", ".lua", ".html", ".css", ".js", ""}


def written_files() -> list[Path]:
    """Files of ours in the repository, test data apart (which may quote any path)."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    if listed.returncode == 0:
        paths = [ROOT / name for name in listed.stdout.decode().split("\0") if name]
    else:  # an unpacked archive
        paths = [path for top in (*PACKAGES, "tests", "docs", "benchmarks") for path in (ROOT / top).rglob("*")]
    return [path for path in paths if path.is_file() and path.suffix in WRITTEN and "fixtures" not in path.parts]


def test_nothing_names_a_machine() -> None:
    files = written_files()
    assert len(files) > 50
    found = {str(path.relative_to(ROOT)): MACHINE.findall(path.read_text(errors="replace")) for path in files}
    assert {path: what for path, what in found.items() if what} == {}
