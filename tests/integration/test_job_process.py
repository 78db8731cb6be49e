"""A job process tells in lines of JSON, whatever the code that it runs prints."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from events.database import Stores
from events.errors import Transient
from services.api import jobs as api_jobs
from tests.contracts.engine_lab import Lab, note
from tests.instance import ROOT, environment

TALKATIVE = """
import os

from tests.contracts.engine_lab import TOY


def apply(recorded, rows):
    print("folding", recorded.position)
    os.write(1, b"as a C library says it\\n")
    return TOY.apply(recorded, rows)


from dataclasses import replace

PROJECTIONS = {"toy": replace(TOY, apply=apply)}
"""


@pytest.mark.parametrize("kind", ["rebuild", "verify", "dry-run"])
def test_what_a_fold_prints_is_not_taken_for_what_a_job_tells(kind: str, tmp_path: Path) -> None:
    (tmp_path / "talkative.py").write_text(TALKATIVE)
    env = environment(
        REFOLD_DATA=str(tmp_path), REFOLD_PROJECTIONS="talkative:PROJECTIONS", PYTHONPATH=f"{tmp_path}:{ROOT}"
    )
    lab = Lab(Stores(f"sqlite:///{tmp_path / 'db'}"))
    lab.archive(*(note(f"e{n}", "t", "a", n) for n in range(5)))
    lab.log.close()

    def run(job: str) -> list[str]:
        command = [sys.executable, "-m", "services.api.job", job, "toy"]
        done = subprocess.run(command, env=env, cwd=ROOT, stdin=subprocess.PIPE, capture_output=True, timeout=100)
        assert done.returncode == 0, done.stderr.decode()
        assert "folding" in done.stderr.decode() and "as a C library says it" in done.stderr.decode()
        return done.stdout.decode().splitlines()

    told = [json.loads(line) for line in run("rebuild")]
    if kind != "rebuild":
        told = [json.loads(line) for line in run(kind)]
    assert "result" in told[-1]


def test_only_so_many_jobs_run_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is a process with connections of its own: who asks too often is told to wait, and the store is not."""
    monkeypatch.setattr(api_jobs, "AT_ONCE", 2)

    async def scenario() -> None:
        jobs = api_jobs.Jobs({**os.environ, "REFOLD_DATA": str(tmp_path)})
        begun = [jobs.start(kind, ["beliefs"]) for kind in ("verify", "dry-run")]
        with pytest.raises(Transient, match=r"2 jobs run already \(dry-run, verify\)"):
            jobs.start("repair", ["beliefs"])
        rebuilt = jobs.start("rebuild", ["beliefs"])
        deadline = time.monotonic() + 100
        while any(job.running for job in (*begun, rebuilt)):
            assert time.monotonic() < deadline
            await asyncio.sleep(0.05)
        again = jobs.start("repair", ["beliefs"], "--org=default")
        await jobs.stop()
        assert not again.running

    asyncio.run(scenario())
