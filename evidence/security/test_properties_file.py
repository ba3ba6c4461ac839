"""References in a properties file of spark-submit: Spark hands them on as they are written."""

import json
import os
import subprocess
import sys

from evidence.security.searching import shown
from spark_kafka_sink.localkafka.settings import MAIN_LISTENER
from tests.patience import PATIENCE_S
from tests.reading import read_topic
from tests.security.listeners import SECRETS
from tests.spark.test_jobs import QUIET, REPOSITORY, SPARK_SUBMIT
from tests.spark.test_streaming import ROWS_PER_FILE, write_file

_PASSWORD = "PASSWORD_OF_ALICE"
_IN_CLEAR = "a-passphrase-in-clear"


def properties_file(world, topic, folder):
    """As conf/secured.conf, with a reference of each kind."""
    kept = folder / "kept"
    kept.mkdir()
    (kept / "login.properties").write_text("user=alice\n", encoding="utf-8")
    trusted = world.kafka.secured("SASL_TLS").authority_file.read_text(encoding="utf-8")
    (kept / "ca.pem").write_text(trusted, encoding="utf-8")
    options = {
        "topic": topic,
        "job.key": "id",
        "kafka.bootstrap.servers": world.kafka.bootstrap_servers_of("SASL_TLS"),
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.username": f"${{file:{kept}/login.properties:user}}",
        "kafka.sasl.password": f"${{env:{_PASSWORD}}}",
        "kafka.ssl.truststore.certificates": f"${{dir:{kept}:ca.pem}}",
        # Without effect here, in clear, and under a name that Spark does not hide by its default.
        "kafka.sasl.oauthbearer.assertion.private.key.passphrase": _IN_CLEAR,
    }
    events = folder / "events"
    events.mkdir()
    event_log = f"spark.eventLog.enabled true\nspark.eventLog.dir {events.as_uri()}\n"
    lines = "".join(f"spark.pykafka.{name} {value}\n" for name, value in options.items())
    path = folder / "job.conf"
    path.write_text(f"{QUIET}{event_log}spark.eventLog.compress false\n{lines}", encoding="utf-8")
    return path


def test_references_of_a_properties_file_are_read_by_the_sink(world, new_topic, tmp_path):
    topic, folder = new_topic(), tmp_path / "in"
    folder.mkdir()
    write_file(folder, 0)
    conf = properties_file(world, topic, tmp_path)
    job = str(REPOSITORY / "jobs" / "batch_to_kafka.py")
    done = subprocess.run(
        [str(SPARK_SUBMIT), "--properties-file", str(conf), job, "--input", str(folder)],
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, _PASSWORD: SECRETS["alice"]},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    records = read_topic(world.kafka.bootstrap_servers_of(MAIN_LISTENER), topic)
    found = sorted(json.loads(record.value or b"")["id"] for record in records)
    assert found == list(range(ROWS_PER_FILE))
    logs = (path for path in (tmp_path / "events").rglob("*") if path.is_file())
    events = "".join(path.read_text(encoding="utf-8") for path in logs)
    # Spark hides a password by the option's name; the others it shows, as they are written. What
    # its default does not hide, the job has it hide.
    assert f"${{file:{tmp_path}/kept/login.properties:user}}" in events
    assert "assertion.private.key.passphrase" in events
    assert shown(done.stdout + done.stderr + events, [SECRETS["alice"], _IN_CLEAR]) == set()
