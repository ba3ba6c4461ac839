"""Bugs of dead letters, which the simulated lives of a query must catch."""

from __future__ import annotations

from spark_kafka_sink.spark.dead_letters import DeadLetters
from tests.simulation.bugs import Bug


def _dead_letters_apart(original):  # type: ignore[no-untyped-def]
    """By a producer of their own, which is in no transaction."""

    def append(self, rows, faults):  # type: ignore[no-untyped-def]
        self._count([*faults.values()], [fault.message for fault in faults.values()])
        worker = self._producer._process
        apart = worker._create(self._producer._config, [])
        apart.append(
            self._columns.of(rows, self._positions, [*faults.values()]), self._own_positions
        )
        apart.flush()
        apart.close()
        worker.producer = self._producer
        self._rows_count += rows.num_rows
        return rows

    return append


def _dead_letters_forgotten(original):  # type: ignore[no-untyped-def]
    return lambda self, rows, faults: rows


def _refused_rows_forgotten(original):  # type: ignore[no-untyped-def]
    return lambda self: bool(self._producer.rejections.take_rejected())


DEAD_LETTER_BUGS: dict[str, Bug] = {
    "dead letters apart": Bug(
        "dead letters are written outside of the transaction of the other rows",
        DeadLetters,
        "_append",
        _dead_letters_apart,
    ),
    "dead letters forgotten": Bug(
        "rows that cannot be written are left out, and written nowhere",
        DeadLetters,
        "_append",
        _dead_letters_forgotten,
    ),
    "refused rows forgotten": Bug(
        "rows that brokers refuse after they were sent are left out, and written nowhere",
        DeadLetters,
        "_append_refused",
        _refused_rows_forgotten,
    ),
}
