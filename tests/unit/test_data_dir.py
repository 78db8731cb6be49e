"""One instance a data folder; the lock goes with the process, the instance file is whole or absent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from events.errors import SetupError
from services.embedded.data_dir import DataDir, Instance, running_instance

_HOLD = """
import os, sys, time
from pathlib import Path
from services.embedded.data_dir import DataDir, Instance
folder = DataDir(Path(sys.argv[1]))
folder.hold()
folder.announce(Instance(os.getpid(), "http://127.0.0.1:4711", "redis://127.0.0.1:4712"))
print("held", flush=True)
time.sleep(60)
"""


def test_a_second_holder_is_refused_with_pid_and_url(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", _HOLD, str(tmp_path)], stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        with pytest.raises(SetupError, match=rf"pid {other.pid}, http://127.0.0.1:4711"):
            DataDir(tmp_path).hold()
        found = running_instance(tmp_path)
        assert found is not None
        assert (found.pid, found.redis_url) == (other.pid, "redis://127.0.0.1:4712")
        other.send_signal(signal.SIGKILL)
    # the file of a killed instance is still there, and means nothing
    assert (tmp_path / "instance.json").exists()
    assert running_instance(tmp_path) is None
    again = DataDir(tmp_path)
    again.hold()
    again.release()


def test_release_forgets_the_instance(tmp_path: Path) -> None:
    folder = DataDir(tmp_path / "new" / "data")
    folder.hold()
    folder.announce(Instance(os.getpid(), "http://x"))
    assert folder.instance() == Instance(os.getpid(), "http://x")
    folder.release()
    assert [file.name for file in folder.path.iterdir()] == ["lock"]


def test_no_instance_where_there_is_no_folder(tmp_path: Path) -> None:
    assert running_instance(tmp_path / "nowhere") is None


def test_an_unwritable_folder_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SetupError, match=r"cannot write the data folder .*: Not a directory; set REFOLD_DATA"):
        DataDir(tmp_path / "file" / "data").hold()
