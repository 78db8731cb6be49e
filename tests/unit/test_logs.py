"""Log lines: one an occurrence, short, without the contents of errors' later lines."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from events.errors import Transient
from services.logs import brief, set_up_logging


@pytest.fixture(autouse=True)
def _root_logger_restored() -> Iterator[None]:
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    yield
    root.handlers[:] = before
    root.setLevel(level)


def _fail() -> None:
    raise Transient("first line\nsecond line with contents")


def test_an_error_is_one_line_with_its_place(capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logging("INFO")
    try:
        _fail()
    except Transient:
        logging.getLogger("refold.test").exception("it\nfailed")
    (line,) = capsys.readouterr().err.splitlines()
    assert " ERROR refold.test it\\nfailed\\nTransient: first line at tests/unit/test_logs.py:" in line
    assert "second line" not in line


def test_tracebacks_are_there_when_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logging("DEBUG")
    try:
        _fail()
    except Transient:
        logging.getLogger("refold.test").exception("it failed")
    (line,) = capsys.readouterr().err.splitlines()
    assert "Traceback (most recent call last)" in line


def test_an_error_without_words_is_its_kind() -> None:
    assert brief(TimeoutError()) == "TimeoutError"


def test_an_error_of_somebody_else_is_not_quoted() -> None:
    """Tenants are walls: a KeyError names a key of somebody's event."""
    assert brief(KeyError("the user's own words")) == "KeyError"
