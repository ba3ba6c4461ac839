"""Compiled kernels: never out of date, never an error, and compiled once.

Each test runs Python processes with cache folders of their own, and most compile one small kernel.
"""

from __future__ import annotations

import ast
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from spark_kafka_sink.record.kernels.cache_folders import FOLDER_PREFIX, KEPT_FOLDERS
from spark_kafka_sink.record.kernels.prepare import MODULES

PACKAGE = Path(__file__).parents[2] / "spark_kafka_sink"
KERNELS = PACKAGE / "record" / "kernels"

HASH_ONE_KEY = """
import json, logging
logging.basicConfig(level=logging.INFO, format="%(message)s")
import numpy as np
from spark_kafka_sink.record.kernels.cache import COMPILED
from spark_kafka_sink.record.kernels.partition import murmur3_of
key = np.frombuffer(b"key", np.uint8)
result = int(murmur3_of(key.ctypes.data, 3))
folder = None if COMPILED.folder is None else str(COMPILED.folder)
taken = [COMPILED.take_compile_ns(), COMPILED.take_compile_ns()]
print(json.dumps({"result": result, "folder": folder, "taken": taken, **COMPILED.totals._asdict()}))
"""
MURMUR3_OF_KEY = 3801901636  # mmh3.hash("key", signed=False), checked below

PREPARE_ALL = """
import json
from spark_kafka_sink.record.kernels.jit import KERNELS
from spark_kafka_sink.record.kernels.prepare import prepare_kernels
print(json.dumps({**prepare_kernels()._asdict(), "kernels": len(KERNELS)}))
"""


# Compiling takes as long as the machine's other work allows.
pytestmark = [pytest.mark.timeout(1800), pytest.mark.slow]

WRITE_WHAT_JAVA_WROTE = """
import json
from spark_kafka_sink.record.kernels.jit import KERNELS
from spark_kafka_sink.record.kernels.prepare import prepare_kernels
from tests.golden import case_files as cases
from tests.golden.test_record_batches import golden
prepare_kernels()
for case in cases.load("batches"):
    for is_large, codec in ((False, "none"), (True, "none"), (False, "gzip")):
        producer = golden(case, compression_type=codec)
        for batch in case["batches"]:
            producer.write_batch(cases.rows(batch["rows"]), is_large)
print(json.dumps({name: len(one.dispatcher.overloads) for name, one in KERNELS.items()}))
"""


class Run(NamedTuple):
    told: dict[str, Any]
    log: str


def environment(folder: Path, **variables: str | None) -> dict[str, str]:
    """Caches and temporary files within ``folder``; None removes a variable."""
    temporary = folder / "tmp"
    temporary.mkdir(exist_ok=True)
    wanted = {
        "NUMBA_CACHE_DIR": str(folder / "cache"),
        "PYKAFKA_SINK_CACHE": None,
        "XDG_CACHE_HOME": None,
        "NUMBA_DISABLE_JIT": None,
        "TMPDIR": str(temporary),
        "PYTHONPATH": str(PACKAGE.parent),
        **variables,
    }
    kept = {name: value for name, value in os.environ.items() if name not in wanted}
    return {**kept, **{name: value for name, value in wanted.items() if value is not None}}


def run(code: str, variables: dict[str, str]) -> Run:
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=variables,
        # The working directory is looked into first, before PYTHONPATH.
        cwd=variables["TMPDIR"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return Run(json.loads(done.stdout), done.stderr)


def counted(one: Run) -> tuple[int, int]:
    return one.told["compiled"], one.told["loaded"]


def kernel_files(folder: Path) -> list[Path]:
    return [path for path in folder.glob(f"{FOLDER_PREFIX}*/*") if path.is_file()]


def copied_package(folder: Path) -> Path:
    """What the kernels need of the package, to be changed by a test."""
    root = folder / "copy"
    target = root / "spark_kafka_sink"
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(PACKAGE / "base", target / "base", ignore=ignored)
    shutil.copytree(PACKAGE / "record", target / "record", ignore=ignored)
    shutil.copy(PACKAGE / "__init__.py", target)
    return root


@pytest.fixture
def filled(tmp_path: Path) -> dict[str, str]:
    """An environment in whose cache the kernel is."""
    variables = environment(tmp_path)
    first = run(HASH_ONE_KEY, variables)
    assert counted(first) == (1, 0)
    assert first.log.count("compiling kernels for first use, about") == 1
    assert first.told["taken"] == [first.told["compile_ns"], 0]
    assert first.told["compile_ns"] > 0
    return variables


class TestFresh:
    def test_a_second_process_compiles_nothing_and_says_nothing(self, filled: dict[str, str]):
        mmh3 = pytest.importorskip("mmh3")
        second = run(HASH_ONE_KEY, filled)
        assert counted(second) == (0, 1)
        assert second.told["compile_ns"] == 0
        assert second.told["result"] == MURMUR3_OF_KEY == mmh3.hash("key", signed=False)
        assert second.log == ""

    def test_a_change_in_an_inlined_file_of_equal_time_and_size_is_seen(self, tmp_path: Path):
        root = copied_package(tmp_path)
        variables = environment(tmp_path, PYTHONPATH=str(root), PYTHONDONTWRITEBYTECODE="1")
        before = run(HASH_ONE_KEY, variables).told["result"]
        inlined = root / "spark_kafka_sink" / "record" / "kernels" / "hashing.py"
        times = inlined.stat()
        text = inlined.read_text(encoding="utf-8")
        changed = text.replace("0xCC9E2D51", "0xCC9E2D53")
        assert changed != text
        inlined.write_text(changed, encoding="utf-8")
        os.utime(inlined, ns=(times.st_atime_ns, times.st_mtime_ns))
        after = run(HASH_ONE_KEY, variables)
        assert counted(after) == (1, 0)
        assert after.told["result"] != before == MURMUR3_OF_KEY

    @pytest.mark.parametrize(
        ("variable", "value"), [("NUMBA_BOUNDSCHECK", "1"), ("NUMBA_CPU_NAME", "generic")]
    )
    def test_what_changes_the_machine_code_is_part_of_the_key(
        self, variable: str, value: str, filled: dict[str, str]
    ):
        assert counted(run(HASH_ONE_KEY, {**filled, variable: value})) == (1, 0)
        assert counted(run(HASH_ONE_KEY, filled)) == (0, 1)

    def test_the_key_covers_every_file_that_kernels_import(self):
        allowed = (
            "base.clock",
            "base.environment",
            "base.errors",
            "record.kernels",
            "record.views",
        )
        for path in KERNELS.glob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ImportFrom) and str(node.module).startswith("spark_kafka"):
                    module = str(node.module).removeprefix("spark_kafka_sink.")
                    assert module.startswith(allowed), f"{path.name} imports {module}"

    def test_all_modules_with_kernels_are_prepared(self):
        with_kernels = {
            path.stem
            for path in KERNELS.glob("*.py")
            if "\n@kernel(" in path.read_text(encoding="utf-8")
        }
        assert {module.__name__.rpartition(".")[2] for module in MODULES} == with_kernels

    def test_unused_folders_are_removed(self, tmp_path: Path):
        variables = environment(tmp_path)
        for number in range(KEPT_FOLDERS + 3):
            old = tmp_path / "cache" / f"{FOLDER_PREFIX}{number}"
            old.mkdir(parents=True)
            os.utime(old, (number, number))
        other = tmp_path / "cache" / "kernels-of-others"
        other.mkdir()
        own = Path(run(HASH_ONE_KEY, variables).told["folder"])
        left = {path.name for path in (tmp_path / "cache").glob(f"{FOLDER_PREFIX}*")}
        newest = range(KEPT_FOLDERS + 3 - (KEPT_FOLDERS - 1), KEPT_FOLDERS + 3)
        assert left == {own.name, *(f"{FOLDER_PREFIX}{number}" for number in newest)}
        assert other.is_dir()


class TestDamaged:
    @pytest.mark.parametrize("damage", ["empty", "cut", "altered", "folder", "no-pickle"])
    def test_a_damaged_file_is_compiled_again_and_said_once(
        self, damage: str, filled: dict[str, str]
    ):
        [file] = kernel_files(Path(filled["NUMBA_CACHE_DIR"]))
        content = file.read_bytes()
        if damage == "empty":
            file.write_bytes(b"")
        elif damage == "cut":
            file.write_bytes(content[: len(content) // 2])
        elif damage == "altered":
            file.write_bytes(content[:-100] + bytes([content[-100] ^ 1]) + content[-99:])
        elif damage == "folder":
            file.unlink()
            file.mkdir()
        else:
            file.write_bytes(hashlib.sha256(b"nonsense").digest() + b"nonsense")
        again = run(HASH_ONE_KEY, filled)
        assert counted(again) == (1, 0)
        assert again.told["result"] == MURMUR3_OF_KEY
        assert again.log.count("a file with a compiled kernel cannot be used") == 1
        if damage != "folder":
            assert counted(run(HASH_ONE_KEY, filled)) == (0, 1)

    def test_processes_that_compile_at_the_same_time_do_not_harm_each_other(self, tmp_path: Path):
        variables = environment(tmp_path)
        with ThreadPoolExecutor(4) as threads:
            runs = list(threads.map(lambda _: run(HASH_ONE_KEY, variables), range(4)))
        assert {one.told["result"] for one in runs} == {MURMUR3_OF_KEY}
        assert not any("cannot" in one.log for one in runs)
        assert len(kernel_files(tmp_path / "cache")) == 1
        assert counted(run(HASH_ONE_KEY, variables)) == (0, 1)


class TestFolders:
    def test_a_named_folder_that_cannot_be_used_is_said_and_replaced(self, tmp_path: Path):
        (tmp_path / "file").write_text("")
        named = tmp_path / "file" / "cache"
        variables = environment(tmp_path, NUMBA_CACHE_DIR=str(named))
        first = run(HASH_ONE_KEY, variables)
        assert first.log.count(f"compiled kernels cannot be kept in {named}") == 1
        assert Path(first.told["folder"]).is_relative_to(tmp_path / "tmp")
        assert counted(run(HASH_ONE_KEY, variables)) == (0, 1)

    def test_where_nothing_can_be_written_it_compiles(self, tmp_path: Path):
        (tmp_path / "file").write_text("")
        variables = environment(tmp_path, NUMBA_CACHE_DIR=str(tmp_path / "file" / "cache"))
        blocked = tmp_path / "tmp" / f"pykafka-sink-{os.geteuid()}"
        blocked.write_text("not a folder")
        only = run(HASH_ONE_KEY, variables)
        assert counted(only) == (1, 0)
        assert only.told["folder"] is None
        assert only.log.count("every Python worker compiles them again") == 1
        assert "Set PYKAFKA_SINK_CACHE to a folder that can be written" in only.log

    def test_a_folder_in_which_others_may_write_is_not_read(self, tmp_path: Path):
        (tmp_path / "file").write_text("")
        variables = environment(tmp_path, NUMBA_CACHE_DIR=str(tmp_path / "file" / "cache"))
        run(HASH_ONE_KEY, variables)
        [root] = (tmp_path / "tmp").glob("pykafka-sink-*")
        assert root.stat().st_mode & 0o777 == 0o700
        root.chmod(0o777)
        again = run(HASH_ONE_KEY, variables)
        assert counted(again) == (1, 0)
        assert "others may write to it" in again.log

    def test_without_a_home_the_package_keeps_its_kernels(self, tmp_path: Path):
        root = copied_package(tmp_path)
        variables = environment(tmp_path, PYTHONPATH=str(root), NUMBA_CACHE_DIR=None, HOME=None)
        first = run(HASH_ONE_KEY, variables)
        in_package = root / "spark_kafka_sink" / "record" / "kernels" / "__pycache__"
        assert Path(first.told["folder"]).parent == in_package
        assert counted(run(HASH_ONE_KEY, variables)) == (0, 1)

    def test_a_package_that_is_not_writable_leaves_them_to_the_user(self, tmp_path: Path):
        root = copied_package(tmp_path)
        (root / "spark_kafka_sink" / "record" / "kernels" / "__pycache__").write_text("")
        variables = environment(
            tmp_path,
            PYTHONPATH=str(root),
            NUMBA_CACHE_DIR=None,
            HOME=str(tmp_path / "home"),
            PYTHONDONTWRITEBYTECODE="1",
        )
        first = run(HASH_ONE_KEY, variables)
        assert Path(first.told["folder"]).parent == tmp_path / "home" / ".cache" / "pykafka-sink"
        assert "cannot" not in first.log
        assert counted(run(HASH_ONE_KEY, variables)) == (0, 1)

    def test_one_variable_names_the_folder_of_everything(self, tmp_path: Path):
        variables = environment(
            tmp_path, NUMBA_CACHE_DIR=None, PYKAFKA_SINK_CACHE=str(tmp_path / "all")
        )
        assert Path(run(HASH_ONE_KEY, variables).told["folder"]).parent == tmp_path / "all"

    def test_out_of_a_zip_file(self, tmp_path: Path):
        root = copied_package(tmp_path)
        archive = shutil.make_archive(str(tmp_path / "package"), "zip", root)
        variables = environment(tmp_path, PYTHONPATH=archive)
        assert counted(run(HASH_ONE_KEY, variables)) == (1, 0)
        assert counted(run(HASH_ONE_KEY, variables)) == (0, 1)


def test_a_compiler_that_is_switched_off_is_an_error_with_advice(tmp_path: Path):
    done = subprocess.run(
        [sys.executable, "-c", HASH_ONE_KEY],
        env=environment(tmp_path, NUMBA_DISABLE_JIT="1"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith(
        "spark_kafka_sink.base.errors.ConfigError: NUMBA_DISABLE_JIT is set, so numba would not"
    )


def test_all_kernels_are_prepared_and_a_second_process_compiles_none():
    variables = {"TMPDIR": tempfile.gettempdir(), "PYTHONPATH": str(PACKAGE.parent)}
    run(PREPARE_ALL, {**os.environ, **variables})
    second = run(PREPARE_ALL, {**os.environ, **variables}).told
    assert second["kernels"] >= 6
    assert (second["compiled"], second["loaded"]) == (0, second["kernels"])


def test_the_producer_calls_kernels_with_the_types_that_were_prepared():
    """Else a kernel would be compiled in the middle of a task."""
    variables = {"TMPDIR": tempfile.gettempdir(), "PYTHONPATH": str(PACKAGE.parent)}
    compiled = run(WRITE_WHAT_JAVA_WROTE, {**os.environ, **variables}).told
    assert len(compiled) >= 6
    assert set(compiled.values()) == {1}
