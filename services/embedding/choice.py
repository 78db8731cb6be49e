"""Which embedding model is wanted, as settings say it, and the name that its vectors are kept by. Loads nothing."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

DEFAULT = "use-multilingual"
NONE = "none"
FORMS = ("auto", "light", "framework")
"""How the default model runs: within sentence-transformers where that is installed, without it, within it."""
KEY = "REFOLD_EMBEDDING_KEY"
"""The variable that holds the key of an endpoint; it is read where it is used, so that no setting holds it."""


@dataclass(frozen=True)
class Choice:
    """A model. ``url`` is the endpoint that serves it, empty for one that is loaded here."""

    model: str = DEFAULT
    url: str = ""
    form: str = "auto"

    @property
    def off(self) -> bool:
        """Whether nothing is embedded."""
        return self.model == NONE

    @property
    def is_default(self) -> bool:
        """Whether it is the model that comes along."""
        return self.model == DEFAULT and not self.url

    @property
    def is_folder(self) -> bool:
        """Whether it lies in a folder of this machine."""
        return not self.url and not self.is_default and Path(self.model).is_dir()

    @property
    def name(self) -> str:
        """The name that vectors are kept by. A folder's holds a digest of its files, all of which are read for it."""
        if self.url:
            return f"endpoint:{self.model}"
        folder = Path(self.model)
        return f"folder:{folder.resolve().name}@{_content(folder)}" if self.is_folder else self.model

    @property
    def source(self) -> dict[str, str]:
        """What ``Choice(**source)`` makes this choice of again, in another process."""
        return {"model": str(Path(self.model).resolve()) if self.is_folder else self.model, "url": self.url}


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
