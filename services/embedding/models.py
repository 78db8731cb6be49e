"""Every embedding model that can be named, and loading one into this process.

``use-multilingual`` is the default. Besides, there are: a folder of a sentence-transformers model; a model of the hub
(``owner/name``, downloaded since somebody named it); a model behind an OpenAI-compatible URL; ``none``.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

from events.errors import SetupError
from services.embedding import use
from services.embedding.model import Embedder

NONE = "none"
KEY = "REFOLD_EMBEDDING_KEY"
"""The variable that holds the key of an endpoint; it is read where it is used, so that no setting holds it."""
FORMS = ("auto", "light", "framework")
"""How the default model runs: in sentence-transformers where that is installed, without it, within it."""


@dataclass(frozen=True)
class Choice:
    """Which model, as a setting says it. ``url`` is the endpoint that serves it, empty for one that is loaded here."""

    model: str = use.NAME
    url: str = ""
    form: str = "auto"

    @property
    def off(self) -> bool:
        """Whether nothing is embedded."""
        return self.model == NONE

    @property
    def name(self) -> str:
        """The name that vectors are kept by. A folder's holds a digest of its files, all of which are read for it."""
        if self.url:
            return f"endpoint:{self.model}"
        folder = Path(self.model)
        return f"folder:{folder.name}@{_content(folder)}" if self._is_folder else self.model

    @property
    def source(self) -> dict[str, str]:
        """What ``Choice(**source)`` makes this choice of again, in another process."""
        return {"model": self.model, "url": self.url}

    @property
    def _is_folder(self) -> bool:
        return self.model != use.NAME and Path(self.model).is_dir()


def load(choice: Choice | str = use.NAME) -> Embedder:
    """The model in memory. A text is taken for the model of a ``Choice``.

    Raises SetupError, saying what to do, where it cannot be loaded; Transient where its endpoint does not answer.
    """
    from services.embedding import framework

    chosen = Choice(choice) if isinstance(choice, str) else choice
    if chosen.off:
        raise SetupError("embeddings are switched off (REFOLD_EMBEDDING_MODEL=none)")
    if chosen.url:
        from services.embedding.endpoint import EndpointModel

        return EndpointModel(chosen.name, chosen.model, chosen.url, os.environ.get(KEY, ""))
    if chosen.model == use.NAME:
        light = chosen.form == "light" or (chosen.form == "auto" and not framework.is_installed())
        return use.LightUse() if light else framework.framework_use()
    return framework.framework_model(chosen.name, chosen.model, from_hub=not chosen._is_folder)


def _content(folder: Path) -> str:
    """Twelve hexadecimal digits of what a folder holds: other weights in it are another model."""
    digest = blake2b(digest_size=6)
    for path in sorted(folder.rglob("*")):
        if not path.is_file() or path.name.startswith(".") or path.suffix == ".md":
            continue
        digest.update(f"{path.relative_to(folder).as_posix()}\0{path.stat().st_size}\0".encode())
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()
