from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from spark_kafka_sink.client.admin import AdminClient
from tests.broker.unreachable import why_unreachable
from tests.patience import PATIENCE_MS, PATIENCE_S


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
                topics = admin.metadata(None, False, admin.deadline_in(PATIENCE_MS)).topics
            assert {topic.name: len(topic.partitions) for topic in topics} == {"a": 3, "b": 1}
            process.send_signal(number)
            assert process.wait(PATIENCE_S) == 0
            assert process.stdout.read() == ""
            assert "Ctrl-C" in process.stderr.read()
        finally:
            process.kill()
    with AdminClient.connect(servers) as admin:
        assert "Connection refused" in why_unreachable(admin, "Connection refused")
