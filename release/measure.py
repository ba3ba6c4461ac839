"""``python -m release.measure [--root FOLDER] [--first-job ROUNDS]``: measure the package's weight.

Print one JSON object: source code, options, modules that the processes load, size of an
installation, and time of a first job. With ``--root`` it measures another checkout, so that the
same script gives the figures before and after a change.

The packages come from the environment that runs the script; it needs the extra ``dev``. The first
jobs need Java as well.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import statistics
import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "spark_kafka_sink"
_ENTRY = "pyspark_kafka_sink.py"
_OTHERS = ("jobs", "release", "benchmarks", "tests", "evidence")
_CPU_ROUNDS = 21
_MEBI = 1 << 20
DRIVER = "import pyspark_kafka_sink, spark_kafka_sink.spark.source, spark_kafka_sink.spark.planning"
"""Imports of the driver's process to plan a write; pyspark's data sources are loaded already."""
TASK = "import spark_kafka_sink.spark.task as task; task.load_all()"
"""Imports of a worker before the first row."""
_SPARKS_OWN = "import pyspark.sql.datasource, pyspark.worker"
_IMPORTS = """
import json, sys, time
{before}
known, cpu = set(sys.modules), time.process_time()
{code}
cpu = time.process_time() - cpu
files = {{n: getattr(m, "__file__", None) for n, m in list(sys.modules.items()) if n not in known}}
print(json.dumps({{"cpu_s": cpu, "files": files}}))
"""
_OPTIONS = """
import importlib, json, pkgutil
from spark_kafka_sink import config
from spark_kafka_sink.config.config_def import ConfigDef
names = [f"{config.__name__}.{module.name}" for module in pkgutil.iter_modules(config.__path__)]
found = [one for name in names for one in vars(importlib.import_module(name)).values()]
tables = [one for one in found if isinstance(one, ConfigDef)]
print(json.dumps(sorted({key.full_name for table in tables for key in table.keys.values()})))
"""
_KAFKA = """
import sys
from benchmarks.topics import SERVER_PROPERTIES, BenchTopic
from spark_kafka_sink.localkafka import LocalKafka
with LocalKafka(server_properties=SERVER_PROPERTIES) as kafka:
    print(kafka.bootstrap_servers, BenchTopic(kafka, 1).name, flush=True)
    sys.stdin.read()
"""


def sources(root: Path, places: tuple[str, ...]) -> dict[str, int]:
    """Return files, lines, syntax nodes and functions of the Python code in ``places``."""
    counted = {"files": 0, "lines": 0, "syntax_nodes": 0, "functions": 0}
    for place in places:
        at = root / place
        for path in [at] if at.is_file() else sorted(at.rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            nodes = list(ast.walk(ast.parse(text)))
            counted["files"] += 1
            counted["lines"] += len(text.splitlines())
            counted["syntax_nodes"] += len(nodes)
            functions = (ast.FunctionDef, ast.AsyncFunctionDef)
            counted["functions"] += sum(isinstance(node, functions) for node in nodes)
    return counted


def _printed(root: Path, code: str) -> Any:
    """Return what ``code`` prints as JSON, run in a process that imports from ``root``."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
        stdout=subprocess.PIPE,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def options(root: Path) -> dict[str, int]:
    """Return how many names a user can set; ``own`` excludes those under ``kafka.``."""
    names = _printed(root, _OPTIONS)
    return {"all": len(names), "own": sum(not name.startswith("kafka.") for name in names)}


def imported(root: Path, code: str) -> dict[str, Any]:
    """Return what ``code`` loads in addition to Spark's modules, and its CPU seconds."""
    script = _IMPORTS.format(before=_SPARKS_OWN, code=code)
    runs = [_printed(root, script) for _ in range(_CPU_ROUNDS)]
    files: dict[str, str | None] = runs[-1]["files"]
    own = [Path(file) for name, file in files.items() if name.startswith(PACKAGE) and file]
    return {
        "modules": len(files),
        "own_modules": len(own),
        "own_lines": sum(len(path.read_text(encoding="utf-8").splitlines()) for path in own),
        "cpu_s_median": round(statistics.median(run["cpu_s"] for run in runs), 3),
        "cpu_s_lowest": round(min(run["cpu_s"] for run in runs), 3),
    }


def _wheel(root: Path, folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir"]
    subprocess.run([*command, str(folder), str(root)], check=True)
    [wheel] = folder.glob("*.whl")
    return wheel


def installation(wheel: Path, folder: Path) -> dict[str, Any]:
    """Return the size and packages of a new virtual environment with the wheel, without pyspark."""
    venv.create(folder, with_pip=False)
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python")]
    subprocess.run([*pip, "install", "--quiet", str(wheel)], check=True)
    listed = subprocess.run(
        [*pip, "list", "--format", "json"], stdout=subprocess.PIPE, check=True
    ).stdout
    [site_packages] = folder.glob("lib/python*/site-packages")
    sizes = {path.name: _bytes_in(path) for path in site_packages.iterdir()}
    largest = sorted(sizes, key=lambda name: -sizes[name])[:8]
    return {
        "mib": round(_bytes_in(folder) / _MEBI, 1),
        "wheel_kib": wheel.stat().st_size >> 10,
        "wheel": wheel.name,
        "packages": sorted(one["name"] for one in json.loads(listed)),
        "largest_mib": {name: round(sizes[name] / _MEBI, 1) for name in largest},
    }


def _bytes_in(path: Path) -> int:
    """Return the size as ``du`` counts it: in blocks, each link once."""
    if path.is_symlink() or not path.is_dir():
        return path.lstat().st_blocks * 512
    return sum(_bytes_in(one) for one in path.iterdir())


def first_jobs(root: Path, wheel: Path, rounds: int) -> dict[str, Any]:
    """Return the seconds of first jobs with one row, each in its own installation.

    The jobs take turns with the empty Python sink; the session's start is not counted.
    """
    kafka = subprocess.Popen(
        [sys.executable, "-c", _KAFKA],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with kafka:
        assert kafka.stdout is not None
        servers, topic = kafka.stdout.readline().split()
        target = {"bootstrap_servers": servers, "topic": topic, "settings": {}}
        given = json.dumps({"target": target, "rows_count": 1})
        turns = [
            {sink: _first_job(root, wheel, sink, given) for sink in ("ours", "empty")}
            for _ in range(rounds)
        ]
        assert kafka.stdin is not None
        kafka.stdin.close()
    return {
        "ours_s_median": statistics.median(turn["ours"] for turn in turns),
        "empty_s_median": statistics.median(turn["empty"] for turn in turns),
        "ratio_median": round(statistics.median(t["ours"] / t["empty"] for t in turns), 3),
        "turns": turns,
    }


def _first_job(root: Path, wheel: Path, sink: str, given: str) -> float:
    with tempfile.TemporaryDirectory() as made:
        folder, cache = Path(made) / "package", Path(made) / "cache"
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target"]
        subprocess.run([*pip, str(folder), str(wheel)], check=True)
        (folder / "benchmarks").symlink_to(root / "benchmarks")
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.cold", "--child", sink, given],
            cwd=folder,
            # Versions that compile at run time use this cache.
            env={**os.environ, "PYTHONPATH": str(folder), "NUMBA_CACHE_DIR": str(cache)},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"the first job of {sink} failed:\n{done.stderr}")
        return float(json.loads(done.stdout.splitlines()[-1])["job_s"])


def measure(root: Path, rounds: int) -> dict[str, Any]:
    """Return all figures of the checkout ``root``; ``rounds`` first jobs."""
    found: dict[str, Any] = {
        "package": sources(root, (PACKAGE, _ENTRY)),
        **{place: sources(root, (place,)) for place in _OTHERS},
        "options": options(root),
        "driver": imported(root, DRIVER),
        "task": imported(root, TASK),
    }
    with tempfile.TemporaryDirectory() as made:
        wheel = _wheel(root, Path(made) / "wheel")
        found["installation"] = installation(wheel, Path(made) / "fresh")
        if rounds:
            found["first_job"] = first_jobs(root, wheel, rounds)
    return found


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--root", type=Path, default=ROOT, help="a checkout; default: this one")
    parser.add_argument("--first-job", type=int, default=0, metavar="ROUNDS")
    parser.add_argument("--output", type=Path, help="a file besides standard output")
    arguments = parser.parse_args()
    text = json.dumps(measure(arguments.root.resolve(), arguments.first_job), indent=1)
    print(text)
    if arguments.output:
        arguments.output.write_text(text + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
