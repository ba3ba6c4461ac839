"""Sets the traps that processes of the sink run into."""

import json

from spark_kafka_sink.transactions.crash_points import POINTS, VARIABLE
from tests.chaos.crash import FOLDER


class Traps:
    """The traps in a folder, as the one who sets them sees them."""

    def __init__(self, folder):
        self._folder = folder
        self._count = 0

    @property
    def environment(self):
        """For the Spark driver."""
        return {VARIABLE: "tests.chaos.crash:hook", FOLDER: str(self._folder)}

    def set(self, trap):
        """Set a trap; its name."""
        assert trap.point in POINTS, trap.point
        self._count += 1
        name = f"{self._count:04}"
        hidden = self._folder / f".{name}"
        hidden.write_text(json.dumps(trap._asdict()), encoding="utf-8")
        hidden.rename(self._folder / f"{name}.trap")
        return name

    def sprung(self, name):
        """Which process reached the trap first, and when; None if nobody has."""
        path = self._folder / f"{name}.sprung"
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None

    def release(self, name):
        """Let a process that is held go on."""
        (self._folder / f"{name}.released").touch()

    def clear(self):
        """Take away every trap that nobody has reached."""
        for path in self._folder.glob("*.trap"):
            path.unlink(missing_ok=True)
