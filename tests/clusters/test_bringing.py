"""Ways to bring the sink to a cluster whose Python does not have it: a zip file, a packed environment."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import time
import venv
from pathlib import Path

import pytest

from spark_kafka_sink.cli import main
from tests.clusters.connect import Environment, server_python
from tests.clusters.standalone import CLIENT_CONF, StandaloneCluster
from tests.clusters.working import WORK, Job, clean_environment, run

pytestmark = pytest.mark.long

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


def test_py_files(cluster: StandaloneCluster, job: Job, tmp_path: Path):
    sink_zip = tmp_path / "sink.zip"
    assert main(["package", "--output", str(sink_zip)]) == 0
    command = cluster.submit("--py-files", str(sink_zip), str(WORK), conf=BARE)
    own = clean_environment(PYSPARK_PYTHON=server_python())
    what = ("batch", "stream")
    run([*command, *job.arguments(*what), "--register"], own)
    for one in what:
        job.check(one)


@pytest.fixture(scope="module")
def packed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with the wheel, what it needs, and its compiled kernels; no pyspark."""
    folder = tmp_path_factory.mktemp("packed")
    venv.create(folder / "made", symlinks=True)
    python = str(folder / "made" / "bin" / "python")
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet"]
    subprocess.run([*pip, str(wheel)], check=True)
    (site_packages,) = (folder / "made").glob("lib/python*/site-packages")
    (site_packages / "sitecustomize.py").write_text(NOTE_WHO_RUNS, encoding="utf-8")
    own = {n: v for n, v in clean_environment().items() if n != "NUMBA_CACHE_DIR"}
    said = run([str(folder / "made" / "bin" / "pykafka-sink"), "warm-up"], own)
    assert f"they are in {site_packages}" in said
    packer = Environment("packing", ["venv-pack", "setuptools<81"], sees_packages_of_tests=False)
    archive = folder / "env.tar.gz"
    prefix = ["--prefix", str(folder / "made"), "--output", str(archive)]
    quick = ["--quiet", "--compress-level", "1"]
    run([str(packer.folder / "bin" / "venv-pack"), *quick, *prefix], own)
    return archive


def test_a_packed_environment_brings_the_sink_and_its_compiled_kernels(
    cluster: StandaloneCluster, job: Job, packed: Path, tmp_path: Path
):
    # Spark looks for sources, and plans, with the path that executors use: there is ./env here, too.
    here, notes = tmp_path / "here", tmp_path / "notes"
    (here / "env").mkdir(parents=True)
    notes.mkdir()
    with tarfile.open(packed) as archive:
        archive.extractall(here / "env")
    own = clean_environment(PYSPARK_PYTHON="./env/bin/python", NOTES_OF_INTERPRETERS=str(notes))
    own.pop("NUMBA_CACHE_DIR", None)
    conf = {
        **BARE,
        "spark.executorEnv.NOTES_OF_INTERPRETERS": str(notes),
        "spark.executorEnv.NUMBA_CACHE_DIR": "",
    }
    command = cluster.submit("--archives", f"{packed}#env", str(WORK), conf=conf)
    started = time.time()
    run([*command, *job.arguments("batch", "exactly-once stream")], own, cwd=here)
    for what in ("batch", "exactly-once stream"):
        job.check(what)
        assert [line["metrics"]["compile_ms"] for line in job.metrics(what)] == [0] * job.units(
            what
        )
    ran = {Path(note.read_text()) for note in notes.iterdir()}
    of_executors = {path for path in ran if path.is_relative_to(cluster.folder)}
    assert of_executors, ran
    assert {path.parts[-3:] for path in ran} <= {
        ("env", "bin", "python"),
        ("env", "bin", "python3"),
    }
    pattern = "lib/python*/site-packages/spark_kafka_sink/record/kernels/__pycache__/pykafka-*"
    found = [k for path in of_executors for k in path.parents[1].glob(pattern)]
    # Loading marks a folder as used.
    assert any(kernels.stat().st_mtime >= started for kernels in found)
