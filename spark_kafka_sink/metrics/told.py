"""What the log is told of a place that lines are sent to: when it fails, and when no longer."""

from __future__ import annotations

import logging

from spark_kafka_sink.base.printable import shown

logger = logging.getLogger(__name__)

_MOST_OF_ERROR = 500


class Told:
    """Once for each change, and for each other reason.

    failing: what cannot be done, to which the reason is added; working: what is done again, with
    ``{batches}`` for the number of those that were not sent
    """

    def __init__(self, failing: str, working: str) -> None:
        self._failing = failing
        self._working = working
        self._told: str | None = None
        self._failed = self._lost_before = 0

    def note(self, problem: str | None, lost: int) -> None:
        """What came of one line. lost: those of this process that were never tried."""
        if problem is None:
            self._note_success(lost)
            return
        problem = shown(problem)
        if self._told is None:
            self._lost_before = lost
        self._failed += 1
        if problem != self._told:
            self._told = problem
            logger.warning(
                f"{self._failing}: {problem}. Batches go on, and what is not sent is lost; the log "
                "tells when it is sent again"
            )

    def _note_success(self, lost: int) -> None:
        if self._told is not None:
            batches = self._failed + lost - self._lost_before
            logger.info(self._working.format(batches=batches))
            self._told = None
            self._failed = 0


def reason_of(error: BaseException) -> str:
    """What the operating system says, else the beginning of the error: those of libraries for other
    file systems have pages."""
    if isinstance(error, OSError):
        text = str(error.strerror or error)
    elif isinstance(error, (ValueError, NotImplementedError)) and str(error):
        text = str(error)
    else:
        text = repr(error)
    line = next(iter(text.splitlines()), "")
    return line if len(line) <= _MOST_OF_ERROR else f"{line[:_MOST_OF_ERROR]}…"
