"""The promises that the demo makes, and whether each of them held."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

_SHOWN_CHARS = 600


class Promises:
    """A list of checks that is printed as it grows. The demo has succeeded when ``kept``."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._made: list[tuple[str, bool]] = []

    def check(self, text: str, held: bool, otherwise: object = "") -> None:
        """A promise, whether it held, and what was found where it did not."""
        self._made.append((text, held))
        if held:
            self._console.print(f"  [green]✓[/] {text}")
        else:
            self._console.print(f"  [bold red]✗ {text}[/]")
            self._console.print(Text(f"    found instead: {otherwise}"[:_SHOWN_CHARS], style="red"))

    @property
    def broken(self) -> list[str]:
        """The promises that did not hold."""
        return [text for text, held in self._made if not held]

    @property
    def count(self) -> int:
        """How many promises were checked."""
        return len(self._made)
