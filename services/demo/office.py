"""The world that the demo's agent acts on: its folder, programs in it, and a supplier who keeps a book of his own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

CONFIRMATION_S = 0.8
"""How long the supplier takes to confirm an order that already stands in his book."""


class Office:
    """Files and programs in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def files(self) -> list[str]:
        """The names of the files."""
        return sorted(path.name for path in self.folder.iterdir() if path.is_file())

    def read(self, name: str) -> str:
        """The text of a file."""
        return (self.folder / name).read_text()

    def write(self, name: str, text: str) -> dict[str, Any]:
        """Write a file."""
        (self.folder / name).write_text(text)
        return {"name": name, "bytes": len(text)}

    def edit(self, name: str, old: str, new: str) -> dict[str, Any]:
        """Replace a piece of a file. Raises ValueError when it is not there."""
        text = self.read(name)
        if old not in text:
            raise ValueError(f"{name} does not contain what is to be replaced")
        return self.write(name, text.replace(old, new, 1))

    def run_program(self, name: str) -> dict[str, Any]:
        """Run a Python program in the folder, and tell how it went."""
        done = subprocess.run(
            [sys.executable, "-B", name], cwd=self.folder, capture_output=True, text=True, timeout=60, check=False
        )
        return {"exit_code": done.returncode, "stdout": done.stdout, "stderr": done.stderr}

    def uri(self, name: str) -> str:
        """The address of a file."""
        return (self.folder / name).as_uri()


class Supplier:
    """Somebody else's system: an order is done when it stands in his book, whoever hears of it."""

    def __init__(self, book: Path) -> None:
        self.book = book

    def order(self, key: str, item: str, count: int) -> str:
        """Place an order under a key of the caller's; returns a receipt, some time after it is placed."""
        receipt = f"receipt {len(self.orders()) + 1}"
        with self.book.open("a") as book:
            book.write(json.dumps({"key": key, "item": item, "count": count, "receipt": receipt}) + "\n")
            book.flush()
            os.fsync(book.fileno())
        time.sleep(CONFIRMATION_S)
        return receipt

    def find(self, key: str) -> str | None:
        """The receipt of an order that was placed under this key."""
        return next((order["receipt"] for order in self.orders() if order["key"] == key), None)

    def orders(self) -> list[dict[str, Any]]:
        """Every order in the book."""
        return [json.loads(line) for line in self.book.read_text().splitlines()] if self.book.exists() else []
