"""``pykafka-sink package``: a zip file from which the sink can be imported."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import spark_kafka_sink
from spark_kafka_sink.cli import main
from spark_kafka_sink.record.compiled.library import platforms

REPOSITORY = Path(__file__).parents[2]
WHERE_FROM = """
import sys
import pyspark_kafka_sink, spark_kafka_sink
from spark_kafka_sink.spark import task
from spark_kafka_sink.record.compiled.calls import load_kernels
load_kernels()
print(pyspark_kafka_sink.__file__)
print(spark_kafka_sink.__file__)
print(pyspark_kafka_sink.DefaultSource.name(), "numba" in sys.modules)
"""


@pytest.fixture
def sink_zip(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    path = tmp_path / "sink.zip"
    assert main(["package", "--output", str(path)]) == 0
    said = capsys.readouterr().out
    assert f"{path}: " in said
    assert "pyarrow" in said
    assert f"it has kernels for {', '.join(platforms())}: " in said
    assert "pyspark_kafka_sink.register(spark)" in said
    return path


def test_it_has_all_modules_and_nothing_else(sink_zip: Path):
    package = REPOSITORY / "spark_kafka_sink"
    sources = package / "record" / "kernels"
    modules = {
        str(path.relative_to(REPOSITORY))
        for path in [*package.rglob("*.py"), *package.rglob("kernels-*.so")]
        if not path.is_relative_to(sources)
    }
    with zipfile.ZipFile(sink_zip) as archive:
        assert archive.testzip() is None
        assert set(archive.namelist()) == {
            *modules,
            "pyspark_kafka_sink.py",
            "spark_kafka_sink/py.typed",
        }


def test_equal_modules_make_equal_files(sink_zip: Path, tmp_path: Path):
    again = tmp_path / "again.zip"
    main(["package", "--output", str(again)])
    assert again.read_bytes() == sink_zip.read_bytes()


def test_the_sink_is_imported_from_it_alone(sink_zip: Path, tmp_path: Path):
    # PYTHONPATH comes before an editable installation of the checkout.
    done = subprocess.run(
        [sys.executable, "-c", WHERE_FROM],
        env={"PYTHONPATH": str(sink_zip), "PATH": "/usr/bin:/bin"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        f"{sink_zip}/pyspark_kafka_sink.py",
        f"{sink_zip}/spark_kafka_sink/__init__.py",
        "pykafka-sink False",
    ]


def test_for_programs(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "sink.zip"
    assert main(["package", "--output", str(path), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["path"] == str(path)
    assert told["bytes"] == path.stat().st_size
    assert told["platforms"] == platforms()
    assert any(one.startswith("lz4") for one in told["needs"])
    assert not any("extra" in one for one in told["needs"])


@pytest.mark.parametrize(
    ("name", "message"),
    [("sink.tar", "must end with .zip"), ("no/folder/sink.zip", "cannot be written: No such file")],
)
def test_what_cannot_be_written_is_refused(
    name: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    assert main(["package", "--output", str(tmp_path / name)]) == 1
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_out_of_a_zip_file_it_is_refused(
    sink_zip: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(
        spark_kafka_sink, "__file__", f"{sink_zip}/spark_kafka_sink/__init__.py", raising=True
    )
    assert main(["package", "--output", str(sink_zip.with_name("other.zip"))]) == 1
    assert "neither an installed wheel nor a checkout" in capsys.readouterr().err
