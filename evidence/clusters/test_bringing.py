"""Ways to bring the sink to a cluster whose Python does not have it: a zip file, a packed environment."""

import os
import shutil
import sys
from pathlib import Path

import pytest

from evidence.clusters.working import WORK, run, server_python
from evidence.harness.environments import clean_environment
from evidence.harness.standalone import CLIENT_CONF
from spark_kafka_sink.__main__ import main
from spark_kafka_sink.record.compiled.library import library_name, platform_name
from tests.snippets import blocks, command_lines

# Minutes each; `make evidence NAME=clusters` runs them.

# Executors have no home, and nothing of this checkout on their path.
BARE = {
    **CLIENT_CONF,
    "spark.executorEnv.PYTHONPATH": "/nowhere",
    "spark.executorEnv.HOME": "/proc/nowhere",
    "spark.executorEnv.XDG_CACHE_HOME": "/proc/nowhere",
}
NOTE_WHO_RUNS = """
import os, sys
folder = os.environ.get("NOTES_OF_INTERPRETERS")
if folder:
    with open(f"{folder}/{os.getpid()}", "w") as file:
        file.write(sys.executable)
"""


def test_py_files(cluster, job, tmp_path):
    sink_zip = tmp_path / "sink.zip"
    assert main(["package", "--output", str(sink_zip)]) == 0
    command = cluster.submit("--py-files", str(sink_zip), str(WORK), conf=BARE)
    own = clean_environment(PYSPARK_PYTHON=server_python())
    what = ("batch", "stream")
    run([*command, *job.arguments(*what), "--register"], own)
    for one in what:
        job.check(one)


@pytest.fixture(scope="module")
def packed(wheel, tmp_path_factory):
    """A folder in which the document's lines were run: the archive, and ./env for the driver."""
    folder = tmp_path_factory.mktemp("packed")
    shutil.copy(wheel, folder)
    own = clean_environment(PATH=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    own.pop("VIRTUAL_ENV", None)
    (block,) = (b for b in blocks("docs/clusters.md", "") if "venv-pack" in b.text)
    make, *others, submitted = command_lines(block)
    run(["bash", "-c", make], own, cwd=folder)
    (site_packages,) = (folder / "made").glob("lib/python*/site-packages")
    (site_packages / "sitecustomize.py").write_text(NOTE_WHO_RUNS, encoding="utf-8")
    for line in others:
        run(["bash", "-c", line], own, cwd=folder)
    assert submitted.startswith("PYSPARK_PYTHON=./env/bin/python spark-submit ")
    assert " --archives env.tar.gz#env " in submitted
    return folder


def test_a_packed_environment_brings_the_sink_and_its_compiled_kernels(
    cluster, job, packed, tmp_path
):
    # Spark looks for sources, and plans, with the path that executors use: there is ./env here, too.
    notes = tmp_path / "notes"
    notes.mkdir()
    own = clean_environment(PYSPARK_PYTHON="./env/bin/python", NOTES_OF_INTERPRETERS=str(notes))
    conf = {**BARE, "spark.executorEnv.NOTES_OF_INTERPRETERS": str(notes)}
    command = cluster.submit("--archives", "env.tar.gz#env", str(WORK), conf=conf)
    run([*command, *job.arguments("batch", "exactly-once stream")], own, cwd=packed)
    for what in ("batch", "exactly-once stream"):
        job.check(what)
    ran = {Path(note.read_text()) for note in notes.iterdir()}
    of_executors = {path for path in ran if path.is_relative_to(cluster.folder)}
    assert of_executors, ran
    assert {path.parts[-3:] for path in ran} <= {
        ("env", "bin", "python"),
        ("env", "bin", "python3"),
    }
    name = library_name(platform_name())
    pattern = f"lib/python*/site-packages/spark_kafka_sink/record/compiled/{name}"
    assert all(list(path.parents[1].glob(pattern)) for path in of_executors)
