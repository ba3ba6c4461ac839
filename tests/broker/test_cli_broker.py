import json
import re
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import confluent_kafka.admin
import pytest

from spark_kafka_sink.client.admin import AdminClient
from tests.broker.unreachable import why_unreachable
from tests.patience import PATIENCE_MS, PATIENCE_S


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_runs_until_it_is_stopped(number):
    command = [sys.executable, "-m", "spark_kafka_sink", "broker", "--topic", "a:3", "b"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
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


@contextmanager
def running(*arguments):
    command = [sys.executable, "-m", "spark_kafka_sink", "broker", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def properties_of(path):
    lines = path.read_text(encoding="ascii").splitlines()
    return dict(line.split("=", 1) for line in lines)


def test_secured_it_tells_what_a_client_needs():
    with running("--secure", "--topic", "a") as process:
        servers = process.stdout.readline().strip()
        path = Path(process.stdout.readline().strip())
        properties = properties_of(path)
        assert path.stat().st_mode & 0o777 == 0o600
        assert properties["bootstrap.servers"] == servers
        assert properties["security.protocol"] == "SASL_SSL"
        login = re.search(r'username="(\w+)" password="(\S+)"', properties["sasl.jaas.config"])
        config = {
            "bootstrap.servers": servers,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": properties["sasl.mechanism"],
            "sasl.username": login[1],
            "sasl.password": login[2],
            "ssl.ca.location": properties["ssl.truststore.location"],
            "log_level": "0",
        }
        assert set(confluent_kafka.admin.AdminClient(config).list_topics("a").topics) == {"a"}
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0
    assert not path.parent.exists()


def test_secured_by_certificates_as_json():
    with running("--secure", "SSL", "--json") as process:
        found = json.loads(process.stdout.readline())
        properties = properties_of(Path(found["client_properties"]))
        config = {
            "bootstrap.servers": found["bootstrap_servers"],
            "security.protocol": properties["security.protocol"],
            "ssl.ca.location": properties["ssl.truststore.location"],
            "ssl.certificate.location": properties["ssl.keystore.location"],
            "ssl.key.location": properties["ssl.keystore.location"],
            "log_level": "0",
        }
        assert len(confluent_kafka.admin.AdminClient(config).list_topics().brokers) == 1
