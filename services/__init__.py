"""What runs: composition, FastStream apps, reactors, the HTTP API and the command line."""

import sys

if sys.version_info < (3, 11):  # noqa: UP036  whoever runs from a checkout, past the packaging metadata
    sys.exit(f"refold: Python 3.11 or newer is needed, this is {sys.version.split()[0]}: make a venv with a newer one")
