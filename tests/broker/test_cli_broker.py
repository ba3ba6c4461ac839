from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from spark_kafka_sink.client.admin import AdminClient


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_runs_until_it_is_stopped(number: signal.Signals) -> None:
    command = [sys.executable, "-m", "spark_kafka_sink", "broker", "--topic", "a:3", "b"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            servers = process.stdout.readline().strip()
            with AdminClient.connect(servers) as admin:
                topics = admin.metadata(None, False, admin.deadline_in(10_000)).topics
            assert {topic.name: len(topic.partitions) for topic in topics} == {"a": 3, "b": 1}
            process.send_signal(number)
            assert process.wait(30) == 0
            assert process.stdout.read() == ""
            assert "Ctrl-C" in process.stderr.read()
        finally:
            process.kill()
    with AdminClient.connect(servers) as admin, pytest.raises(Exception, match="refused"):
        admin.metadata(None, False, admin.deadline_in(200))
