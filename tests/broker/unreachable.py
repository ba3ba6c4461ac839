"""Asking brokers that cannot be reached."""

from spark_kafka_sink.base.errors import BootstrapError
from tests.patience import reason_given_time

_USUALLY_ENOUGH_MS = 300


def why_unreachable(admin, *wanted):
    """The error's text, with as much time as it takes to find out ``wanted``."""

    def ask(timeout_ms):
        return admin.metadata([], False, admin.deadline_in(timeout_ms))

    return reason_given_time(ask, BootstrapError, _USUALLY_ENOUGH_MS, *wanted)
