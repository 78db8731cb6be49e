"""What commands print: tables for people, rows for programs, and no control character of recorded data."""

from __future__ import annotations

import json

import pytest

from services.cli.operate import _print_verified
from services.cli.output import LINES, WIDTH, duration, one_line, print_entries, print_fields, print_json, print_table


@pytest.fixture(autouse=True)
def no_width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a terminal of WIDTH columns."""
    monkeypatch.setenv("COLUMNS", str(WIDTH))


RUN = "a-run-with-a-name-that-is-long-and-must-be-copied-whole-" + "x" * 40


@pytest.mark.usefixtures("drawn")
def test_a_name_is_never_broken_and_others_give_way(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("run", "agent~", "goal~"), [(RUN, "assistant", "find " * 30), ("r2", "b", "c")])
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if RUN in line and "assistant" in line and "find find" in line]


@pytest.mark.usefixtures("drawn")
def test_columns_that_may_be_cut_share_what_is_left(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("id", "short~", "long~", "longer~"), [("1", "abc", "d" * 200, "e" * 300)])
    line = next(line for line in capsys.readouterr().out.splitlines() if "abc" in line)
    assert line.count("d") > 30 and line.count("e") > 30
    assert len(line) <= WIDTH


def test_a_program_gets_whole_rows_with_tabs(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [(RUN, 12345, True, None, ["a", "b"], {"x": 1}, "two\n  lines\tand a tab", "y" * 500)]
    print_table(("run", "n#", "ok", "none", "list", "object", "text~", "long~"), rows, empty="nothing")
    names, row = capsys.readouterr().out.splitlines()
    assert names.split("\t") == ["run", "n", "ok", "none", "list", "object", "text", "long"]
    assert row.split("\t") == [RUN, "12345", "yes", "", "a; b", "x: 1", "two lines and a tab", "y" * 500]
    print_table(("a", "b"), [], empty="nothing")
    assert capsys.readouterr().out == "a\tb\n"


@pytest.mark.usefixtures("drawn")
def test_objects_are_written_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    print_fields("run r1", [("learnings", [{"text": "x" * 400, "score": 0.5, "empty": []}, "plain"]), ("none", [])])
    out = capsys.readouterr().out
    assert "text: x" in " ".join(out.split()) and "score: 0.5" in out and "plain" in out
    assert out.count("x") == 401, "nothing is cut"
    assert "{" not in out and "empty" not in out and "none" not in out


@pytest.mark.usefixtures("drawn")
def test_a_wide_column_is_cut_to_what_is_left(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [(number, "tool.returned", "x" * 500, "") for number in (1, 20)]
    print_table(("seq#", "type", "data~", "note"), rows)
    lines = capsys.readouterr().out.splitlines()
    assert max(len(line) for line in lines) <= WIDTH
    assert all("tool.returned" in line and "…" in line for line in lines if "xxx" in line)


@pytest.mark.usefixtures("drawn")
def test_wide_characters_count_double(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("name", "text~"), [("北京", "天气" * 200)])
    wide = [line for line in capsys.readouterr().out.splitlines() if "北京" in line]
    assert sum(2 if ord(char) > 0x2E80 else 1 for char in wide[0]) <= WIDTH


@pytest.mark.parametrize("width", ["", "100"])
def test_no_control_character_and_no_markup_of_data_takes_effect(
    width: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", width)
    print_table(("what", "text~"), [("[bold]a[/bold]", "red \x1b[31m alarm \x07 [link=http://x]y[/link]")])
    print_fields("[red]title", [("name", "\x1b]0;owned\x07")])
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "\x07" not in out
    assert "[bold]a[/bold]" in out
    assert "[red]title" in out


@pytest.mark.usefixtures("drawn")
def test_a_text_stands_below_its_row_and_is_not_longer_than_said(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [(7, "北京", "price: 3\n\x1b[31m[red]late"), (12345, "b", "\n".join(f"line {n}" for n in range(9)))]
    print_entries(("n#", "from", "says"), rows, below=("says",))
    lines = capsys.readouterr().out.splitlines()
    assert lines[:4] == ["     n  from", "     7  北京", "    price: 3", "    �[31m[red]late"]
    assert lines[4].split() == ["12,345", "b"]
    assert lines[5:] == [f"    line {n}" for n in range(LINES - 1)] + [f"    … {9 - LINES + 1} more lines"]
    print_entries(("n#", "says"), [(1, "word " * 40)], below=("says",))
    assert all(len(line) <= WIDTH for line in capsys.readouterr().out.splitlines())


def test_a_program_gets_texts_in_their_rows(capsys: pytest.CaptureFixture[str]) -> None:
    print_entries(("n#", "says", "by"), [(1, "two\nlines", "x")], below=("says",))
    assert capsys.readouterr().out == "n\tsays\tby\n1\ttwo lines\tx\n"


@pytest.mark.usefixtures("drawn")
def test_an_empty_table_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("a", "b"), [], empty="no runs yet")
    assert capsys.readouterr().out == "no runs yet\n"


def test_json_is_one_line(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    print_json({"text": "a\nb", "city": "café"})
    assert (
        capfdbinary.readouterr().out
        == json.dumps({"text": "a\nb", "city": "café"}, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
    )


def test_one_line_and_durations() -> None:
    assert one_line("a\n  b\tc") == "a b c"
    assert one_line({"a": [1]}) == '{"a":[1]}'
    assert one_line("x" * 20, 5) == "xxxx…"
    assert one_line(None) == ""
    assert [duration(value) for value in (None, 0.25, 120, 7200)] == ["-", "0.2 s", "2.0 min", "2.0 h"]


def test_what_differs_is_shown_column_by_column(capsys: pytest.CaptureFixture[str]) -> None:
    row = {"org": "o", "key": "k", "status": "a", "count": 1}
    changed = {"table": "tasks", "key": ["o", "k"], "live": row, "refolded": row | {"count": "1"}}
    gone = {"table": "tasks", "key": ["o", "k2"], "live": None, "refolded": row}
    _print_verified(
        {
            "projections": [
                {"name": "p", "generation": 1, "checksum": "c", "equal": False, "first_differences": [changed, gone]}
            ]
        }
    )
    assert capsys.readouterr().out.splitlines()[-5:] == [
        "p, tasks, row o / k",
        '  count: live 1, refolded "1"',
        "p, tasks, row o / k2",
        "  only refolded: org: o, key: k, status: a, count: 1",
        "to put it right: `refold rebuild p`, or one key with --key",
    ]
