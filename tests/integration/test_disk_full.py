"""A full disk stops archiving, visibly; when there is room again it goes on, with nothing lost or torn."""

from __future__ import annotations

import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from events.archive import queries, store
from events.archive.schema import metadata
from events.database import Database, Stores
from events.errors import SetupError, Transient
from events.event import START, Position
from tests.servers import postgres_server
from tests.stack import event

MIB = 1 << 20
SIGNS = ("full", "disk I/O error", "No space left", "PostgreSQL cannot be reached")
"""What the errors say. A PostgreSQL that cannot write its own log ends every connection."""


@contextmanager
def small_disk(folder: Path, size: int) -> Iterator[Path]:
    """A file system of ``size`` bytes."""
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip("no right to mount a small file system")
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def archive_until_full(db: Database, make_room: Callable[[], None]) -> None:
    db.write_now(metadata.create_all)
    db.write_now(lambda conn: store.open_log(conn, 1, 0))
    mark = db.write_now(lambda conn: store.end_epoch(conn, 0, START, 1, "first", 0))

    def more(mark: Position) -> Position:
        entries = [(Position(1, mark.n + 1 + n), event(source="x" * 200)) for n in range(100)]
        return db.write_now(lambda conn: store.archive_batch(conn, 0, mark, entries, 0))

    def fill(mark: Position) -> tuple[Position, str]:
        while True:
            try:
                mark = more(mark)
            except Transient as full:
                return mark, str(full)

    mark, said = fill(mark)
    assert any(sign in said for sign in SIGNS), said
    assert mark.n > 0
    if db.dialect == "sqlite":
        assert db.read_now(lambda conn: store.watermark(conn, 0)) == mark
    make_room()
    # of a commit that failed nobody knew whether it held
    stands = db.read_now(lambda conn: store.watermark(conn, 0))
    assert stands == mark or (stands.n == mark.n + 100 and "during the commit" in said)
    mark = more(more(stands))
    rows = db.read_now(lambda conn: queries.read_log(conn, 0, START, 100_000))
    assert [row.position for row in rows] == [(1, n) for n in range(mark.n + 1)]
    assert len({row.event().id for row in rows}) == mark.n + 1
    db.close()


def test_a_full_file_system(tmp_path: Path) -> None:
    with small_disk(tmp_path / "small", 2 * MIB) as disk:
        ballast = disk / "ballast"
        ballast.write_bytes(b"x" * (MIB // 2))
        archive_until_full(Stores(f"sqlite:///{disk}").log(), ballast.unlink)


def test_a_full_file_system_of_postgresql() -> None:
    """Rows and PostgreSQL's own log share the disk; a server that ended is started again, as its keeper would do."""
    with tempfile.TemporaryDirectory(prefix="refold-disk-") as folder:
        Path(folder).chmod(0o755)
        with small_disk(Path(folder) / "small", 160 * MIB) as disk:
            server = postgres_server(disk / "data", max_wal_size="32MB", autovacuum="off")
            url = server.new_database()
            ballast = disk / "ballast"
            ballast.write_bytes(b"x" * (shutil.disk_usage(disk).free - 3 * MIB))

            def make_room() -> None:
                ballast.unlink()
                server.start()

            try:
                archive_until_full(Stores(url).log(), make_room)
            finally:
                server.stop()


_LIMITED = """
import resource, sys
from pathlib import Path
from events.database import Stores
from tests.integration.test_disk_full import MIB, archive_until_full

soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (MIB, hard))
db = Stores("sqlite:///" + sys.argv[1]).log()
archive_until_full(db, lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard)))
"""


def test_a_limited_file_size(tmp_path: Path) -> None:
    """In a process of its own: the limit is the process's, and Python ignores the signal that comes with it."""
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[1] == resource.RLIM_INFINITY
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", _LIMITED, str(tmp_path)],
        cwd=root,
        capture_output=True,
        check=False,
        text=True,
    )
    assert done.returncode == 0, done.stderr


def test_an_unwritable_folder_needs_a_person(tmp_path: Path) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("not a folder")
    with pytest.raises(SetupError, match="cannot be made"):
        Stores(f"sqlite:///{blocker}/stores").log()
