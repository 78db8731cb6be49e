"""How a command fails: one line for the person, an exit code for the script."""

from __future__ import annotations

OK, NO, USAGE, UNREACHABLE, INTERRUPTED = 0, 1, 2, 3, 130


class CliError(Exception):
    """A command ends with this message and exit code."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code
