"""Driver and executors in different JVMs, each with Python workers of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S
from tests.reading import read_topic


@pytest.mark.long
def test_batch_and_stream_arrive_whole_on_two_executors(kafka, new_topic, tmp_path):
    topic = new_topic(4)
    script = Path(__file__).with_name("cluster_job.py")
    run = subprocess.run(
        [sys.executable, str(script), kafka.bootstrap_servers, topic, str(tmp_path)],
        env=dict(os.environ, PYSPARK_PYTHON=sys.executable),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-3000:]
    assert "executors: 2" in run.stdout
    values = [int(r.value) for r in read_topic(kafka.bootstrap_servers, topic)]
    # The stream was stopped in the middle: whole micro-batches, and no gap before the last one.
    seen = set(values)
    assert seen >= set(range(25_000))
    assert sorted(v for v in values if v < 20_000) == list(range(20_000))
