"""A cluster of kfake brokers in a process of its own (main.go), and what is done to it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parent


def build(go, folder):
    """The program, compiled by ``go`` into ``folder``. Its modules are fetched at the first time."""
    program = folder / "kfake"
    command = [go, "build", "-o", str(program), "."]
    done = subprocess.run(command, cwd=FOLDER, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return program


class Seen(NamedTuple):
    """A request that a broker got. ``ns``: of the program's clock."""

    api: str
    node: int
    ns: int


class KfakeCluster:
    """A context manager. ``version``: of the Kafka whose versions of requests it knows."""

    def __init__(self, program, brokers=1, version="", configs=None):
        self.version = version
        self._process = subprocess.Popen(
            [
                *(str(program), "-brokers", str(brokers), "-version", version),
                *("-configs", json.dumps(configs or {})),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            self.bootstrap_servers = ",".join(self._answer())
        except BaseException:
            self.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, exc_type, exc, traceback):
        self.close()

    def close(self):
        """End the program."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def create_topic(self, name, partitions=1, **configs):
        self.do("topic", topic=name, partitions=partitions, configs=configs)

    def do(self, what, **more):
        """What main.go lists, done or begun when this returns."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": what, **more}) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def requests(self, api):
        """All that came so far, in their order."""
        return [Seen(**seen) for seen in self.do("requests") if seen["api"] == api]

    def _answer(self):
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"the program ended with {self._process.wait()}"
        answer = json.loads(line)
        assert "error" not in answer, answer["error"]
        return answer["result"]
