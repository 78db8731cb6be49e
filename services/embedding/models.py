"""Loading an embedding model into this process, whichever was chosen.

``use-multilingual`` is the default. Besides, there are: a folder of a sentence-transformers model; a model of the hub
(``owner/name``, downloaded since somebody named it); a model behind an OpenAI-compatible URL; ``none``.
"""

from __future__ import annotations

import os

from events.errors import SetupError
from services.embedding import framework
from services.embedding.choice import DEFAULT, KEY, Choice
from services.embedding.cross_encoder import PREFIX, CrossEncoderModel
from services.embedding.model import Embedder
from services.embedding.use import LightUse


def load(choice: Choice | str = DEFAULT) -> Embedder:
    """The model in memory. A text is taken for the model of a ``Choice``.

    Raises SetupError, saying what to do, where it cannot be loaded; Transient where its endpoint does not answer.
    """
    chosen = Choice(choice) if isinstance(choice, str) else choice
    if chosen.off:
        raise SetupError("embeddings are switched off (REFOLD_EMBEDDING_MODEL=none)")
    if chosen.url:
        from services.embedding.endpoint import EndpointModel

        return EndpointModel(chosen.name, chosen.model, chosen.url, os.environ.get(KEY, ""))
    if chosen.model.startswith(PREFIX):
        return CrossEncoderModel(chosen.model.removeprefix(PREFIX))
    if chosen.is_default:
        light = chosen.form == "light" or (chosen.form == "auto" and not framework.is_installed())
        return LightUse() if light else framework.framework_use()
    return framework.framework_model(chosen.name, chosen.model, from_hub=not chosen.is_folder)
