"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Data = Annotated[
    Path | None,
    typer.Option("--data", metavar="DIR", help="Data folder of the instance (REFOLD_DATA; default .refold)."),
]
Url = Annotated[str | None, typer.Option("--url", metavar="URL", help="Address of the instance (REFOLD_URL).")]
AsJson = Annotated[bool, typer.Option("--json", help="JSON on standard output.")]
Limit = Annotated[int | None, typer.Option("--limit", metavar="N", min=1, help="At most so many.")]
