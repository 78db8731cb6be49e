"""A cross-encoder in its own process decides the order of what a search found first."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from services.embedding.framework import is_installed
from services.searching.judging import CrossEncoder
from tests.soak import soak

pytestmark = [soak, pytest.mark.skipif(not is_installed(), reason="sentence-transformers is not installed")]

WORDS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "window", "seat", "table")
MAKE = """
import sys, torch
from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast
folder = sys.argv[1]
torch.manual_seed(0)
size = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8}
config = BertConfig(vocab_size=8, num_labels=1, **size)
BertForSequenceClassification(config).eval().save_pretrained(folder)
BertTokenizerFast(vocab=folder + "/vocab.txt").save_pretrained(folder)
"""


def test_passages_are_judged(tmp_path: Path) -> None:
    folder = tmp_path / "tiny"
    folder.mkdir()
    (folder / "vocab.txt").write_text("\n".join(WORDS))
    subprocess.run([sys.executable, "-c", MAKE, str(folder)], check=True, capture_output=True, timeout=100)

    async def ask() -> None:
        judge = CrossEncoder(str(folder))
        try:
            judged = await judge.judge("window seat", ["window seat", "table", "座位", ""])
            assert len(judged) == 4 and all(0 < one < 1 for one in judged)
            assert judged == await judge.judge("window seat", ["window seat", "table", "座位", ""])
        finally:
            await judge.close()

    asyncio.run(ask())
