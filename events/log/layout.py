"""Where a partition's log lies in Redis. Its keys share the hash tag ``{p}``, so that a cluster keeps them together.

``refold:{p}:log`` is the stream. ``refold:{p}:meta`` is a hash:

========  =============================================================================================
epoch     the open epoch
next      n of the next entry; the stream's last id is ``<epoch>-<next - 1>``, or there is no stream
server    ``run_id`` of the server that the epoch was opened on
archived  n of the last archived entry of this epoch; -1: none
complete  1 while nothing was ever forgotten, so that what ``seen`` does not hold never happened
turn      how often the two ``seen`` hashes changed places; even: ``a`` is the current one
older     n of the last entry that the older hash remembers; -1: there is no older hash
seen_a    entries of ``seen:a``, for whoever finds fewer: the log is closed until recovery has asked the archive
seen_b    entries of ``seen:b``
log       identity of the log (``events.archive.store.log_id``): what another store wrote is never taken for ours
========  =============================================================================================

``refold:{p}:seen:a|b`` remember, by a field whose first letter tells what it is (U+001F separates names)::

    i<org> <key> <id>     "<n> <digest>"        where an id stands, and with what content; in an earlier epoch
                                                "<epoch>-<n> <digest>"
    a<org> <task>         "<attempt> <run>"     the latest attempt and the run that won it; "0 " for none
    r<org> <task> <run>   "<attempt>"           which attempt a run is; "0" when it has not started,
                                                "-1" when it wanted to, and another run had the task
    s<org> <task> <run>   "<seq>"               the last sequence number; "0" for none
"""

from __future__ import annotations

from typing import NamedTuple

SEPARATOR = "\x1f"
OWNER = "refold:log"
"""Key that holds the identity of the log that this Redis belongs to; set by whoever opens a log on it first."""

ARCHIVED_CHANNEL = "refold:archived"
"""Pub/sub channel of wake-ups: ``"<p> <epoch>-<n> <log>"`` once the watermark of a partition of a log has advanced.

All databases of a server share its channels, so the identity of the log tells whose wake-up it is.
"""

APPENDED_CHANNEL = "refold:appended"
"""Pub/sub channel of a Redis Cluster: ``"<p>"`` whenever a partition has something new. See ``arrivals``."""


class Keys(NamedTuple):
    """The keys of one partition; the first four in the order in which the scripts take them."""

    log: str
    meta: str
    seen_a: str
    seen_b: str
    foreign: str
    """Stream of entries found in the log that no append wrote; kept for people to look at."""
    aside: str
    """Where recovery puts what it replaces: the log while it is copied, a value of another type for good."""
    turn: str
    """Who opens the partition at the moment; it expires."""


def keys_of(partition: int) -> Keys:
    """The keys of a partition.

    >>> keys_of(3).log
    'refold:{3}:log'
    """
    tag = f"refold:{{{partition}}}"
    names = ("log", "meta", "seen:a", "seen:b", "foreign", "aside", "turn")
    return Keys(*(f"{tag}:{name}" for name in names))
