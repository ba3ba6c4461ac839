"""A clock that the test sets, and chance that it chooses."""

START_MS = 1_700_000_000_000
"""The time of day at which simulated clocks begin."""


class Chance:
    """The same number again and again."""

    def __init__(self, value):
        self.value = value

    def random(self):
        return self.value


NO_JITTER = Chance(0.5)


class SimulatedClock:
    """ahead_ms: by how much the time of day was set forth, or back"""

    def __init__(self):
        self.elapsed_ms = 0
        self.ahead_ms = 0

    def now_ms(self):
        return self.elapsed_ms

    def timestamp_ms(self):
        return START_MS + self.elapsed_ms + self.ahead_ms

    def perf_ns(self):
        return self.elapsed_ms * 1_000_000

    def sleep(self, milliseconds):
        self.elapsed_ms += milliseconds
