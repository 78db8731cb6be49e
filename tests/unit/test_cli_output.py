"""What commands print: nothing wider than 100 columns, and no control character of recorded data on a terminal."""

from __future__ import annotations

import json

import pytest

from services.cli.output import WIDTH, duration, one_line, print_fields, print_json, print_table


def test_a_wide_column_is_cut_to_what_is_left(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [(number, "tool.returned", "x" * 500, "") for number in (1, 20)]
    print_table(("seq#", "type", "data~", "note"), rows)
    lines = capsys.readouterr().out.splitlines()
    assert max(len(line) for line in lines) <= WIDTH
    assert all("tool.returned" in line and "…" in line for line in lines if "xxx" in line)


def test_wide_characters_count_double(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("name", "text~"), [("北京", "天气" * 200)])
    wide = [line for line in capsys.readouterr().out.splitlines() if "北京" in line]
    assert sum(2 if ord(char) > 0x2E80 else 1 for char in wide[0]) <= WIDTH


def test_no_control_character_and_no_markup_of_data_takes_effect(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("what", "text~"), [("[bold]a[/bold]", "red \x1b[31m alarm \x07 [link=http://x]y[/link]")])
    print_fields("[red]title", [("name", "\x1b]0;owned\x07")])
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "\x07" not in out
    assert "[bold]a[/bold]" in out
    assert "[red]title" in out


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
