"""Models in processes of their own: they answer, die, hang up and go with whoever began them."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import psutil
import pytest

from events.archive.schema import metadata
from events.database import Stores
from events.errors import SetupError, Transient
from projections.retrieval import models
from services.embedding.choice import Choice
from services.embedding.framework import is_installed
from services.embedding.models import load
from services.embedding.process import ModelProcess
from services.embedding.queries import Embeddings
from tests.coroutines import in_loop
from tests.instance import ROOT

WAIT_S = 60.0
LIGHT = Choice(form="light")
TEXTS = ["Where is my flight to Boston?", "", "航班已取消", "a lone surrogate \ud800 is no text"]


async def gone(pid: int) -> None:
    async with asyncio.timeout(WAIT_S):
        while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:  # noqa: ASYNC110
            await asyncio.sleep(0.05)


@in_loop
async def test_a_process_answers_many_at_once_dies_and_is_begun_again() -> None:
    """A question that nobody waits for any more takes nobody else's answer."""
    model = ModelProcess(LIGHT, nice=5)
    try:
        here = load(LIGHT)
        loaded = await model.load()
        assert loaded == (here.name, 512)
        asked = [model.embed([f"{text} {number}"]) for number, text in enumerate(TEXTS * 2)]
        for (number, text), rows in zip(enumerate(TEXTS * 2), await asyncio.gather(*asked), strict=True):
            same = f"{text} {number}".replace("\ud800", "\ufffd")
            assert np.allclose(rows, here.embed([same]), atol=1e-5)
        impatient = asyncio.create_task(model.embed(["the first question " * 40] * 2))
        await asyncio.sleep(0)
        impatient.cancel()
        assert np.allclose(await model.embed(["the second"]), here.embed(["the second"]), atol=1e-5)
        assert model.pid is not None and os.getpriority(os.PRIO_PROCESS, model.pid) > os.getpriority(os.PRIO_PROCESS, 0)
        os.kill(model.pid, signal.SIGKILL)
        with pytest.raises(Transient, match="failed"):
            await model.embed(["a text while it dies"])
        assert (await model.embed(["a text"])).shape == (1, 512)
    finally:
        await model.close()
    assert model.pid is None


@in_loop
async def test_a_process_that_nobody_asks_ends() -> None:
    model = ModelProcess(LIGHT, idle_s=0.2)
    await model.embed(["a text"])
    pid = model.pid
    assert pid is not None
    await gone(pid)
    await model.close()


@in_loop
async def test_a_process_goes_with_whoever_began_it() -> None:
    """Even by kill -9: no model is left behind in memory."""
    code = """
        import asyncio
        from services.embedding.choice import Choice
        from services.embedding.process import ModelProcess

        async def main():
            model = ModelProcess(Choice(form="light"))
            await model.load()
            print(model.pid, flush=True)
            await asyncio.sleep(600)

        asyncio.run(main())
    """
    parent = subprocess.Popen(  # noqa: ASYNC220  nothing else runs here
        [sys.executable, "-c", textwrap.dedent(code)], cwd=ROOT, stdout=subprocess.PIPE
    )
    with parent:
        assert parent.stdout is not None
        pid = int(await asyncio.to_thread(parent.stdout.readline))
        assert psutil.pid_exists(pid)
        parent.kill()
        parent.wait()
    await gone(pid)


def at_work() -> list[int]:
    """The processes of models that this process has begun."""
    mine = psutil.Process().children()
    return [one.pid for one in mine if "services.embedding" in " ".join(one.cmdline())]


@in_loop
async def test_the_model_of_searches_is_there_before_the_first_of_them(tmp_path: Path) -> None:
    """Nothing is begun where there are no vectors, and a model that cannot be had disturbs nobody."""
    log = Stores(f"sqlite:///{tmp_path}").log()
    log.write_now(metadata.create_all)
    embeddings = Embeddings(LIGHT, log)
    try:
        await embeddings.warm()
        assert at_work() == []
        log.write_now(lambda conn: models.register(conn, LIGHT.name, LIGHT.source, 512))
        await embeddings.warm()
        begun = at_work()
        assert len(begun) == 1
        assert (await embeddings.of_query("a flight")).vector is not None
        assert at_work() == begun
        log.write_now(lambda conn: models.register(conn, LIGHT.name, LIGHT.source, 300))
        await embeddings.warm()
    finally:
        await embeddings.close()
        log.close()
    assert at_work() == []


@in_loop
async def test_queries_are_embedded_by_the_model_whose_vectors_there_are(tmp_path: Path) -> None:
    log = Stores(f"sqlite:///{tmp_path}").log()
    log.write_now(metadata.create_all)
    embeddings = Embeddings(Choice("some/other-model"), log)  # it is being made ready, say
    try:
        assert (await embeddings.of_query("a flight")).why == "no vectors have been made yet"
        log.write_now(lambda conn: models.register(conn, LIGHT.name, LIGHT.source, 512))
        found = await embeddings.of_query("a flight")
        assert found.vector is not None and found.model == LIGHT.name
        again = await embeddings.of_query(" a flight ")
        assert again.vector is found.vector
        for blank in ("", " \n"):
            assert (await embeddings.of_query(blank)).why == "the query is empty"
        assert (await embeddings.of_query("a flight " * 12_000)).vector is not None
        # a model of this name now, but none that these vectors are of
        log.write_now(lambda conn: models.register(conn, LIGHT.name, LIGHT.source, 300))
        assert "is now 'use-multilingual' with 512" in (await embeddings.of_query("a hotel")).why
    finally:
        await embeddings.close()
        log.close()
    off = Embeddings(Choice("none"), log)
    assert "switched off" in (await off.of_query("a flight")).why


@pytest.mark.skipif(not is_installed(), reason="sentence-transformers is an extra: make setup EXTRAS=[embeddings]")
def test_models_of_the_framework(tmp_path: Path) -> None:
    """The default model gives the same vectors in it as without it; a folder is a model; a broken one says so."""
    bag = {"vocab": ["flight", "hotel", "car"], "word_weights": {}, "unknown_word_weight": 1}
    kind = "sentence_transformers.sentence_transformer.modules.bow.BoW"
    for name, config in (("bag", json.dumps(bag)), ("broken", "{")):
        folder = tmp_path / name / "0_BoW"
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(config)
        listed = [{"idx": 0, "name": "0", "path": "0_BoW", "type": kind}]
        (folder.parent / "modules.json").write_text(json.dumps(listed))
    code = f"""
        import json, sys
        import numpy as np
        from events.errors import SetupError
        from services.embedding.choice import Choice
        from services.embedding.models import load

        model = load(Choice(form="framework"))
        np.save("{tmp_path}/rows.npy", model.embed({TEXTS[:3]!r}))
        bag = load("{tmp_path}/bag")
        rows = bag.embed(["flight car", "", "unknown"], query=True)
        try:
            load("{tmp_path}/broken")
        except SetupError as error:
            said = str(error)
        import torch
        told = dict(name=model.name, bag=bag.name, rows=rows.tolist(), said=said, threads=torch.get_num_threads())
        print(json.dumps(told))
    """
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(code)], cwd=ROOT, capture_output=True, text=True,
        check=False, timeout=110,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    light = load(LIGHT)
    assert (np.load(tmp_path / "rows.npy") == light.embed(TEXTS[:3])).all() and told["name"] == light.name
    assert told["bag"] == Choice(f"{tmp_path}/bag").name and told["threads"] == 1
    assert np.allclose(told["rows"], [[0.5**0.5, 0, 0.5**0.5], [0, 0, 0], [0, 0, 0]])
    assert "cannot be loaded" in told["said"]


@in_loop
async def test_a_model_that_cannot_be_loaded_says_so_over_the_pipe() -> None:
    model = ModelProcess(Choice("none"))
    with pytest.raises(SetupError, match="switched off"):
        await model.load()
    assert model.pid is None
