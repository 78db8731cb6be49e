"""The demo from its first line to its last: a temporary folder, an instance, the story, and the verdict."""

from __future__ import annotations

import signal
import tempfile
import time
from pathlib import Path
from types import FrameType

import httpx
from rich.console import Console
from rich.panel import Panel
from rich.table import Table

from services.demo import show
from services.demo.instance import Instance, Trouble
from services.demo.promises import Promises
from services.demo.story import Story

_GO_ON = (
    ("refold up", "everything on this machine; Ctrl-C ends it"),
    ("refold import FILE --format chat", "your own trajectories"),
    ("from refold import Refold", "your agents: docs/guides/publish.md, resume.md"),
    ("refold rebuild task_state", "refold a read model: docs/guides/rebuild.md"),
    ("refold up --workers 4", "more consumers: docs/guides/scale.md"),
)


def run() -> int:
    """Tell the story; 0 when every promise held, 1 when one did not, or when the demo could not go on."""
    console = show.make_console()
    before = signal.signal(signal.SIGTERM, _stop)
    began = time.monotonic()
    try:
        promises = _tell(console)
    except (Trouble, httpx.HTTPError) as error:
        console.print(f"\n[bold red]The demo could not go on:[/] {error}", markup=True)
        return 1
    finally:
        signal.signal(signal.SIGTERM, before)
    return _verdict(console, promises, time.monotonic() - began)


def _tell(console: Console) -> Promises:
    console.print("[bold]Refold[/]: what agents do is a log; what you want to know is folded from it, and refolded.")
    with tempfile.TemporaryDirectory(prefix="refold-demo-") as folder:
        place = Path(folder).resolve()
        with Instance(place / "data", place / "up.log") as instance:
            console.print(f"[dim]refold up: {instance.url}, ready after {instance.seconds_to_start:.1f} s[/]")
            return Story(console, place, instance).tell()


def _verdict(console: Console, promises: Promises, seconds: float) -> int:
    console.print()
    if promises.broken:
        for text in promises.broken:
            console.print(f"[bold red]broken:[/] {text}")
        console.print(f"{len(promises.broken)} of {promises.count} promises did not hold.")
        return 1
    lines = Table.grid(padding=(0, 2))
    for command, meaning in _GO_ON:
        lines.add_row(f"[bold]{command}[/]", meaning)
    console.print(Panel(lines, title="how to go on", title_align="left", border_style="green"))
    console.print(f"[bold green]All {promises.count} promises held[/], in {seconds:.0f} s.")
    return 0


def _stop(number: int, frame: FrameType | None) -> None:
    """SIGTERM ends the demo as Ctrl-C does, so that nothing it started is left."""
    raise KeyboardInterrupt
