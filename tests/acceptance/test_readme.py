"""Runs what the README and the guides tell a reader to type, in order: each page in an empty folder, a new instance.

A ``bash`` block is run as it stands; one that starts ``refold up`` runs in the background until the next such block or
the end of the page; ``python`` blocks are programs; ``make`` lines are checked without being run; others are not run.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.instance import ROOT, environment

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs" / "guides").glob("*.md"))]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
UP = re.compile(r"([A-Z_]+=\S+ )*refold up\b")
LINK = re.compile(r"\]\(([^)#]+)\)")


def blocks(page: Path) -> list[tuple[str, str]]:
    """Language and text of each block that is to be run."""
    return [(language, text) for language, text in BLOCK.findall(page.read_text()) if language in ("bash", "python")]


class Reader:
    """Types the blocks of one page."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
        # any free port, another one at each start: commands and agents find the instance by its folder
        self.environ = environment(PATH=path, REFOLD_HTTP_PORT="0", REFOLD_SPOOL=str(folder / "spool"))
        self._up: subprocess.Popen[str] | None = None
        self._url = ""

    def type(self, language: str, text: str) -> str:
        """Run one block; what it wrote. Fails when it fails."""
        if language == "bash" and text.startswith("make "):
            return "".join(self._run(["make", "-n", line.split("#")[0].split()[1]], ROOT) for line in text.splitlines())
        if language == "bash" and UP.match(text):
            return self._start(text)
        if language == "python":
            return self._run([sys.executable, "-c", text], self.folder)
        return self._run(["bash", "-euo", "pipefail", "-c", text], self.folder)

    def stop(self) -> None:
        """End the instance that runs."""
        if self._up is None:
            return
        self._up.terminate()
        assert self._up.wait(60) == 0, "it ends cleanly"
        assert self._up.stdout is not None
        self._up.stdout.close()
        self._up = None

    def _start(self, text: str) -> str:
        self.stop()
        command = re.sub(r"^", "exec env ", text.strip())
        with (self.folder / "up.log").open("a") as log:
            self._up = subprocess.Popen(
                ["bash", "-c", command],
                cwd=self.folder, env=self.environ, stdout=subprocess.PIPE, stderr=log, text=True,
            )  # fmt: skip
        assert self._up.stdout is not None
        ready = self._up.stdout.readline()
        assert ready.startswith("ready "), (self.folder / "up.log").read_text()
        self._url = ready.split()[1]
        return ready

    def _run(self, command: list[str], folder: Path) -> str:
        # into a file, so that what a block leaves in the background does not hold the pipe open
        with (self.folder / "typed.log").open("w+") as out:
            # what cannot look into the folder is told where the instance is
            told = {"REFOLD_URL": self._url} if "REFOLD_URL" in command[-1] else {}
            done = subprocess.run(
                command, cwd=folder, env=self.environ | told, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                timeout=100, check=False,
            )  # fmt: skip
            out.seek(0)
            wrote = out.read()
        assert done.returncode == 0, f"{command[-1]}\n--- ended with {done.returncode}:\n{wrote}"
        return wrote


@contextmanager
def reading(folder: Path) -> Iterator[Reader]:
    reader = Reader(folder)
    try:
        yield reader
    finally:
        reader.stop()


def resumed(wrote: list[str]) -> None:
    """The agent is killed, and its second life repeats nothing."""
    assert "it was killed" in wrote[1]
    assert "pay" in wrote[2]
    assert "check before repeating" in " ".join(wrote[2].split())
    assert wrote[3].splitlines()[:3] == ["attempt 2", "step pay", "step file"]
    assert "end_turn" in wrote[3]


def projected(wrote: list[str]) -> None:
    """A projection of one's own counts what was published, and again with a new column."""
    assert "task/order-0 clerk buy 1" in _words(wrote[3])
    assert "(('clerk', 'buy'), 3)" in wrote[4]
    assert "task/order-0 clerk buy 1 1" in _words(wrote[7]) and "task/order-1 clerk buy 1 0" in _words(wrote[7])
    assert {"tool_calls__g1", "tool_calls__g2"} <= set(wrote[7].split())
    assert [line.split()[-1] for line in wrote[8].splitlines()[-5:]] == ["equal"] * 5


def rebuilt(wrote: list[str]) -> None:
    """A change is shown before it is made, made, taken back, made again."""
    texts = ["\n".join(_words(text)) for text in wrote]
    assert "task/task-7 number 14 2" in texts[3]
    assert any("note_book" in line and "stale" in line for line in texts[6].splitlines())
    assert "new column author" in texts[7] and "notes 20 20 0 20 0" in texts[7]
    assert "notes, row default / task/task-7 / number: changed" in texts[7] and 'content: 14 -> "14"' in texts[7]
    assert "task/task-7 number 14 2 clerk" in texts[8] and "which equals a second refold" in texts[8]
    assert [line.split()[-1] for line in texts[8].splitlines()[-5:]] == ["equal"] * 5
    assert "note_book: the rebuild is cancelled" in texts[10]
    assert "note_book__g3 retired" in texts[11] and "note_book__g2 active" in texts[11] and "equal" in texts[11]
    assert "note_book__g3 active" in texts[12]
    assert "dropped note_book__g2" in texts[13]
    assert texts[14].count("every row was right") == 2


def upgraded(wrote: list[str]) -> None:
    """A worker of the new version moves its read model on; the old version calls that stale, and still reads."""
    assert "notes_seen__g2" in wrote[5]
    assert "stale" in wrote[6] and "task/task-0" in wrote[6]
    assert "task/task-0 2 b" in _words(wrote[9])


def kept(wrote: list[str]) -> None:
    """A graph is killed, goes on after its last step, asks, is answered; one with a journal, too. The store finds."""
    assert "it was killed" in wrote[1]
    assert "['flight', 'hotel'] May I pay 480 EUR?" in wrote[2] and "['flight', 'hotel', 'pay: yes']" in wrote[2]
    assert wrote[2].splitlines()[-3:] == ["flight", "hotel", "pay: yes"]
    assert "it was killed" in wrote[3] and ".jsonl" in wrote[3]
    assert wrote[4].splitlines()[:3:2] == ["{'n': 40}", "not sent yet: 0"]
    assert "[('users', 'bob')]" in wrote[5]
    assert [line.split()[-1] for line in wrote[6].splitlines()[-2:]] == ["equal"] * 2


def remembered(wrote: list[str]) -> None:
    """Cards say what the guide shows; templates make them anew."""
    cards, card, judged, again = (" ".join(wrote[at].split()) for at in (1, 2, 3, 6))
    assert "- OF-5513 | Mill at the Weir | 40 | 33.9 | 2026-06-12" in cards
    assert "available: false; reason: no driver before 2026-06-15" in cards
    assert "used by 4 later calls or decisions" in card and "offers.offer_id" in card
    assert "status invalidated" in judged and judged.rindex("status active") > judged.index("status invalidated")
    assert "Order ORD-77120 is placed: OF-5513, 33.9 EUR delivery (arrives on: 2026-06-12, door: back)" in again
    assert "rye flour offers:" not in again and again.endswith("equal")


def settled(wrote: list[str]) -> None:
    """By the run's model, by the agent's, by what events prove; again on purpose; after the agent was killed."""
    texts = [" ".join(text.split()) for text in wrote]
    assert "settled by backend" in texts[2] and "interrupt" in texts[2] and "two of three are filed" in texts[2]
    assert "settlement.attempted" in texts[3] and "settlement.recorded" in texts[3]
    assert "file invoice 14, once its tax number is known" in texts[4]
    assert "settled by agent" in texts[6] and "all are filed" in texts[6]
    assert "degraded no_model" in texts[7] and "side effect done: file_invoice" in texts[7]
    assert "since then side effect done: file_invoice" in texts[7]
    assert texts[8].endswith('"version":2 "version":1')
    assert "it was killed" in texts[9] and "lost" in texts[9] and "settled by backend" in texts[9]


def believed(wrote: list[str]) -> None:
    """An outage: notice, caution, constraint, recovery, with the confidences of the guide; a trigger; a user's wish."""
    story = [part.splitlines() for part in wrote[1].strip().split("\n\n")]
    told = [(part[0].partition(": after ")[2], "\n".join(part[1:])) for part in story]
    assert [head for head, _ in told] == [
        "8 runs pay is active, confidence 0.83", "9 runs pay is candidate, confidence 0.67",
        "10 runs pay is candidate, confidence 0.56", "11 runs pay is constraint, confidence 0.48",
        "15 runs pay is candidate, confidence 0.56", "31 runs pay is active, confidence 0.73",
    ]  # fmt: skip
    assert "- pay worked 8 of 8 times" in told[0][1] and "confirm first" not in told[0][1]
    assert "- pay: timeout" in told[1][1] and "- pay: failed the last 2 times" in told[2][1]
    assert "- unless confirmed first, do not use pay" in told[3][1] and "do not use" not in told[4][1]
    assert "- pay worked 28 of 37 times" in told[5][1] and "- pay: timeout" in told[5][1]
    assert wrote[2].startswith("Rules, the user's own first:\n")
    assert [("large-refunds" in line) for line in wrote[3].splitlines()] == [False, True]
    assert "28 for, 9 against" in wrote[4]
    assert wrote[5].splitlines() == ["只给结论，不讲过程 (0.71)", "told to tina: []"]


def unstuck(wrote: list[str]) -> None:
    """A discarded event stays out, what waited for it is folded; mended code folds the rest."""
    assert "ZeroDivisionError" in wrote[4]
    assert "task/bad note 2 0.25" in _words(wrote[5])
    assert "still there" in wrote[6]
    assert "poison" not in wrote[9]
    assert "task/bad note 1" not in wrote[9] and "task/worse note 1 0.2" in _words(wrote[9])


def _words(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines()]


def erased(wrote: list[str]) -> None:
    """Counting changes nothing; erasing ends when nothing is left, and is recorded."""
    assert "Nothing was changed" in wrote[2] and "decision.made" in wrote[2]
    assert "the privacy desk" in wrote[3] and "done" in wrote[3]
    assert "unequal" not in wrote[4] and "equal" in wrote[4]


COMES_TRUE = {
    "resume": resumed,
    "projection": projected,
    "rebuild": rebuilt,
    "upgrade": upgraded,
    "deadletters": unstuck,
    "langgraph": kept,
    "beliefs": believed,
    "cards": remembered,
    "settlement": settled,
    "erasure": erased,
}
"""What a page says of what its blocks write."""


@pytest.mark.timeout(300)
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.stem))
def test_every_command_of_a_page_works(page: Path, tmp_path: Path) -> None:
    wrote = []
    with reading(tmp_path) as reader:
        for language, text in blocks(page):
            wrote.append(reader.type(language, text))
    assert len(wrote) >= 4, "the page shows something"
    assert ("Traceback" in "".join(wrote)) == (page.stem == "deadletters"), "but the one that a dead letter shows"
    if page.stem in COMES_TRUE:
        COMES_TRUE[page.stem](wrote)


@pytest.mark.parametrize("page", [*PAGES, ROOT / "docs" / "architecture.md"], ids=lambda page: str(page.stem))
def test_every_link_leads_somewhere(page: Path) -> None:
    links = [link for link in LINK.findall(page.read_text()) if "://" not in link]
    assert [link for link in links if not (page.parent / link).exists()] == []
