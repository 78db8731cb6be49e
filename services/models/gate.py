"""The gate before an endpoint: how many calls at once, when none at all. Pure; the caller brings the time.

After ``FAILURES`` calls in a row without an answer the circuit opens: nobody calls for a while, then one call tries,
and whether it is answered decides for all. An endpoint that asks for a pause gets it.
"""

from __future__ import annotations

from dataclasses import dataclass

FAILURES = 5
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0


@dataclass
class Gate:
    """The state of one endpoint. Times are seconds of any one clock that does not go back."""

    failures: int = 0
    paused_until: float = 0.0
    _pause_s: float = FIRST_PAUSE_S
    _trying: bool = False

    def wait_s(self, now: float) -> float:
        """Seconds until a call may go out; 0: now."""
        if now < self.paused_until:
            return self.paused_until - now
        return FIRST_PAUSE_S if self._is_open() and self._trying else 0.0

    def begin(self) -> None:
        """A call goes out."""
        self._trying = self._is_open()

    def answered(self) -> None:
        """The endpoint answered, whatever it said."""
        self.failures, self._trying, self._pause_s = 0, False, FIRST_PAUSE_S

    def failed(self, now: float) -> None:
        """A call got no answer: the circuit opens, or stays open for longer."""
        self.failures += 1
        self._trying = False
        if self._is_open():
            self._pause(now, None)

    def limited(self, now: float, retry_s: float | None) -> float:
        """The endpoint asks for a pause (None: of its own length); how many seconds it is."""
        self._trying = False
        return self._pause(now, retry_s)

    def abandoned(self) -> None:
        """A call was cancelled: nothing is known of the endpoint."""
        self._trying = False

    @property
    def is_open(self) -> bool:
        """Whether calls fail in a row: the endpoint counts as away."""
        return self._is_open()

    def _is_open(self) -> bool:
        return self.failures >= FAILURES

    def _pause(self, now: float, retry_s: float | None) -> float:
        wait_s = self._pause_s if retry_s is None else retry_s
        self.paused_until = max(self.paused_until, now + wait_s)
        if retry_s is None:
            self._pause_s = min(self._pause_s * 2, LONGEST_PAUSE_S)
        return wait_s
