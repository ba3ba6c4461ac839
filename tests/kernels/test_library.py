"""The library of kernels: never out of date, never an error, and compiled once.

Each test runs Python processes with cache folders of their own. Most compile one small kernel, in a
copy of the package that has no other.
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
from spark_kafka_sink.record.kernels.library import FILE_NAME, packaged_name, platform_name
from spark_kafka_sink.record.kernels.modules import MODULES, SHARED

PACKAGE = Path(__file__).parents[2] / "spark_kafka_sink"
KERNELS = PACKAGE / "record" / "kernels"
ONE_KERNEL = """
from spark_kafka_sink.record.kernels.declared import kernel
from spark_kafka_sink.record.kernels.hashing import murmur3

@kernel
def hash_of(address: int, length: int) -> int:
    return murmur3(address, length)
"""
ONLY_THAT = """
from spark_kafka_sink.record.kernels import hashing, one
MODULES = (one,)
SHARED = (hashing,)
"""
HASH_ONE_KEY = """
import json, logging, sys
logging.basicConfig(level=logging.INFO, format="%(message)s")
import numpy as np
from spark_kafka_sink.record.kernels.library import LIBRARY
from spark_kafka_sink.record.kernels.one import hash_of
key = np.frombuffer(b"key", np.uint8)
result = int(hash_of(key.ctypes.data, 3))
print(json.dumps({
    "result": result,
    "folder": None if LIBRARY.folder is None else str(LIBRARY.folder),
    "taken": [LIBRARY.take_compile_ns(), LIBRARY.take_compile_ns()],
    "compilers": sorted({"numba", "llvmlite"} & set(sys.modules)),
    **LIBRARY.totals._asdict(),
}))
"""
MURMUR3_OF_KEY = 3801901636  # mmh3.hash("key", signed=False), checked below
IMPORT_WHAT_A_TASK_DOES = """
import json, sys
from spark_kafka_sink.record.kernels.library import LIBRARY
from spark_kafka_sink.spark.task import load_all
load_all()
print(json.dumps({"compilers": sorted({"numba", "llvmlite"} & set(sys.modules)),
                  **LIBRARY.totals._asdict(),
                  "of C": [n for n in ("memcpy", "memmove") if n.encode() in LIBRARY._data]}))
"""

# Compiling takes as long as the machine's other work allows.
pytestmark = [pytest.mark.timeout(1800), pytest.mark.slow]


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
        "TMPDIR": str(temporary),
        "PYTHONPATH": str(folder / "copy"),
        **variables,
    }
    kept = {name: value for name, value in os.environ.items() if name not in wanted}
    return {**kept, **{name: value for name, value in wanted.items() if value is not None}}


def started(code: str, variables: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        env=variables,
        # The working directory is looked into first, before PYTHONPATH.
        cwd=variables["TMPDIR"],
        capture_output=True,
        text=True,
        check=False,
    )


def run(code: str, variables: dict[str, str]) -> Run:
    done = started(code, variables)
    assert done.returncode == 0, done.stderr
    return Run(json.loads(done.stdout), done.stderr)


def counted(one: Run) -> tuple[int, int]:
    return one.told["compiled"], one.told["loaded"]


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """A folder with a copy of the package that has one kernel alone."""
    root = tmp_path / "copy"
    target = root / "spark_kafka_sink"
    ignored = shutil.ignore_patterns("__pycache__", "*.so")
    shutil.copytree(PACKAGE / "base", target / "base", ignore=ignored)
    shutil.copytree(PACKAGE / "record", target / "record", ignore=ignored)
    shutil.copy(PACKAGE / "__init__.py", target)
    (target / "record" / "kernels" / "one.py").write_text(ONE_KERNEL)
    (target / "record" / "kernels" / "modules.py").write_text(ONLY_THAT)
    return root


@pytest.fixture
def filled(tmp_path: Path, copied: Path) -> dict[str, str]:
    """An environment in whose cache the kernel is."""
    variables = environment(tmp_path)
    first = run(HASH_ONE_KEY, variables)
    assert counted(first) == (1, 0)
    assert first.log.count("compiling kernels for first use, about") == 1
    assert first.told["taken"] == [first.told["compile_ns"], 0]
    assert first.told["compile_ns"] > 0
    assert first.told["compilers"] == []
    return variables


class TestFresh:
    def test_a_second_process_compiles_nothing_and_says_nothing(self, filled: dict[str, str]):
        mmh3 = pytest.importorskip("mmh3")
        second = run(HASH_ONE_KEY, filled)
        assert counted(second) == (0, 1)
        assert second.told["compile_ns"] == 0
        assert second.told["result"] == MURMUR3_OF_KEY == mmh3.hash("key", signed=False)
        assert second.log == ""

    def test_a_change_in_a_helper_of_equal_time_and_size_is_seen(
        self, copied: Path, filled: dict[str, str]
    ):
        inlined = copied / "spark_kafka_sink" / "record" / "kernels" / "hashing.py"
        times = inlined.stat()
        text = inlined.read_text(encoding="utf-8")
        changed = text.replace("0xCC9E2D51", "0xCC9E2D53")
        assert changed != text
        inlined.write_text(changed, encoding="utf-8")
        os.utime(inlined, ns=(times.st_atime_ns, times.st_mtime_ns))
        after = run(HASH_ONE_KEY, {**filled, "PYTHONDONTWRITEBYTECODE": "1"})
        assert counted(after) == (1, 0)
        assert after.told["result"] != MURMUR3_OF_KEY

    def test_settings_of_the_compiler_change_nothing(self, tmp_path: Path, copied: Path):
        """The library is for the platform; and a compiler that is switched off compiles it."""
        variables = environment(tmp_path, NUMBA_DISABLE_JIT="1", NUMBA_OPT="0")
        assert run(HASH_ONE_KEY, variables).told["result"] == MURMUR3_OF_KEY

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

    @pytest.mark.parametrize(
        ("modules", "marks"),
        [(MODULES, ["\n@kernel\n"]), ((*MODULES, *SHARED), ["\n@inlined\n", "\n@called\n"])],
        ids=["kernels", "helpers"],
    )
    def test_every_module_that_declares_is_compiled(self, modules: Any, marks: list[str]):
        names = {module.__name__.rpartition(".")[2] for module in modules}
        for path in KERNELS.glob("*.py"):
            text = path.read_text(encoding="utf-8")
            if any(mark in text for mark in marks):
                assert path.stem in names

    def test_unused_folders_are_removed(self, tmp_path: Path, copied: Path):
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


class TestPackaged:
    """A release has the library for this platform in it."""

    @pytest.fixture
    def library(self, copied: Path, filled: dict[str, str]) -> Path:
        [kept] = Path(filled["NUMBA_CACHE_DIR"]).glob(f"{FOLDER_PREFIX}*/{FILE_NAME}")
        digest = kept.parent.name.rpartition("-")[2]
        folder = copied / "spark_kafka_sink" / "record" / "kernels"
        path = folder / f"kernels-{platform_name()}-{digest}.so"
        path.write_bytes(kept.read_bytes()[hashlib.sha256().digest_size :])
        shutil.rmtree(filled["NUMBA_CACHE_DIR"])
        return path

    def test_nothing_is_compiled_or_kept(self, library: Path, filled: dict[str, str]):
        only = run(HASH_ONE_KEY, filled)
        assert (counted(only), only.log) == ((0, 1), "")
        assert only.told["folder"] == str(library.parent)
        assert not Path(filled["NUMBA_CACHE_DIR"]).exists()

    def test_out_of_a_zip_file(self, library: Path, filled: dict[str, str], tmp_path: Path):
        archive = shutil.make_archive(str(tmp_path / "package"), "zip", library.parents[3])
        only = run(HASH_ONE_KEY, {**filled, "PYTHONPATH": archive})
        assert (counted(only), only.log) == ((0, 1), "")

    def test_that_of_other_sources_is_not_taken(self, library: Path, filled: dict[str, str]):
        with (library.parent / "one.py").open("a") as file:
            file.write("# changed")
        assert counted(run(HASH_ONE_KEY, filled)) == (1, 0)

    def test_a_damaged_one_is_told_and_compiled(self, library: Path, filled: dict[str, str]):
        library.write_bytes(library.read_bytes()[:100])
        only = run(HASH_ONE_KEY, filled)
        assert counted(only) == (1, 0)
        assert only.log.count("a file with compiled kernels cannot be used") == 1

    def test_its_name_has_platform_and_sources(self):
        assert packaged_name().startswith(f"kernels-{sys.platform}-")


class TestCompiling:
    def test_without_a_linker_llvm_loads_an_object_file(self, tmp_path: Path, copied: Path):
        variables = environment(tmp_path, PATH=str(tmp_path))
        for expected in ((1, 0), (0, 1)):
            one = run(HASH_ONE_KEY, variables)
            assert counted(one) == expected
            assert one.told["result"] == MURMUR3_OF_KEY
            assert one.told["compilers"] == ["llvmlite"]

    def test_without_the_compiler_it_is_an_error_with_advice(self, tmp_path: Path, copied: Path):
        (copied / "numba.py").write_text("raise ImportError('numba is not there')")
        done = started(HASH_ONE_KEY, environment(tmp_path))
        assert done.returncode == 1
        last = done.stderr.splitlines()[-1]
        assert "ConfigError: the kernels of this sink cannot be compiled: " in last
        assert "numba is not there" in last
        assert last.endswith("or install numba")

    def test_processes_that_need_it_at_the_same_time_compile_once(
        self, tmp_path: Path, copied: Path
    ):
        variables = environment(tmp_path)
        with ThreadPoolExecutor(4) as threads:
            runs = list(threads.map(lambda _: run(HASH_ONE_KEY, variables), range(4)))
        assert {one.told["result"] for one in runs} == {MURMUR3_OF_KEY}
        assert not any("cannot" in one.log for one in runs)
        assert sorted(map(counted, runs)) == [(0, 1), (0, 1), (0, 1), (1, 0)]


class TestDamaged:
    @pytest.mark.parametrize("damage", ["empty", "cut", "altered", "folder", "no-library"])
    def test_a_damaged_file_is_compiled_again_and_said_once(
        self, damage: str, filled: dict[str, str]
    ):
        [file] = Path(filled["NUMBA_CACHE_DIR"]).glob(f"{FOLDER_PREFIX}*/{FILE_NAME}")
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
            nonsense = content[32:128]
            file.write_bytes(hashlib.sha256(nonsense).digest() + nonsense)
        again = run(HASH_ONE_KEY, filled)
        assert counted(again) == (1, 0)
        assert again.told["result"] == MURMUR3_OF_KEY
        assert again.log.count("a file with compiled kernels cannot be used") == 1
        if damage != "folder":
            assert counted(run(HASH_ONE_KEY, filled)) == (0, 1)


class TestFolders:
    def test_a_named_folder_that_cannot_be_used_is_said_and_replaced(
        self, tmp_path: Path, copied: Path
    ):
        (tmp_path / "file").write_text("")
        named = tmp_path / "file" / "cache"
        variables = environment(tmp_path, NUMBA_CACHE_DIR=str(named))
        first = run(HASH_ONE_KEY, variables)
        assert first.log.count(f"compiled kernels cannot be kept in {named}") == 1
        assert Path(first.told["folder"]).is_relative_to(tmp_path / "tmp")
        assert counted(run(HASH_ONE_KEY, variables)) == (0, 1)

    def test_where_nothing_can_be_written_it_compiles(self, tmp_path: Path, copied: Path):
        (tmp_path / "file").write_text("")
        variables = environment(tmp_path, NUMBA_CACHE_DIR=str(tmp_path / "file" / "cache"))
        blocked = tmp_path / "tmp" / f"pykafka-sink-{os.geteuid()}"
        blocked.write_text("not a folder")
        only = run(HASH_ONE_KEY, variables)
        assert counted(only) == (1, 0)
        assert only.told["folder"] is None
        assert only.log.count("every Python worker compiles them again") == 1
        assert "Set PYKAFKA_SINK_CACHE to a folder that can be written" in only.log

    def test_a_folder_in_which_others_may_write_is_not_read(self, tmp_path: Path, copied: Path):
        (tmp_path / "file").write_text("")
        variables = environment(tmp_path, NUMBA_CACHE_DIR=str(tmp_path / "file" / "cache"))
        run(HASH_ONE_KEY, variables)
        [root] = (tmp_path / "tmp").glob("pykafka-sink-*")
        assert root.stat().st_mode & 0o777 == 0o700
        root.chmod(0o777)
        again = run(HASH_ONE_KEY, variables)
        assert counted(again) == (1, 0)
        assert "others may write to it" in again.log

    def test_without_a_home_the_package_keeps_its_kernels(self, tmp_path: Path, copied: Path):
        variables = environment(tmp_path, NUMBA_CACHE_DIR=None, HOME=None)
        first = run(HASH_ONE_KEY, variables)
        in_package = copied / "spark_kafka_sink" / "record" / "kernels" / "__pycache__"
        assert Path(first.told["folder"]).parent == in_package
        assert counted(run(HASH_ONE_KEY, variables)) == (0, 1)

    def test_a_package_that_is_not_writable_leaves_them_to_the_user(
        self, tmp_path: Path, copied: Path
    ):
        (copied / "spark_kafka_sink" / "record" / "kernels" / "__pycache__").write_text("")
        variables = environment(
            tmp_path,
            NUMBA_CACHE_DIR=None,
            HOME=str(tmp_path / "home"),
            PYTHONDONTWRITEBYTECODE="1",
        )
        first = run(HASH_ONE_KEY, variables)
        assert Path(first.told["folder"]).parent == tmp_path / "home" / ".cache" / "pykafka-sink"
        assert "cannot" not in first.log
        assert counted(run(HASH_ONE_KEY, variables)) == (0, 1)

    def test_one_variable_names_the_folder_of_everything(self, tmp_path: Path, copied: Path):
        variables = environment(
            tmp_path, NUMBA_CACHE_DIR=None, PYKAFKA_SINK_CACHE=str(tmp_path / "all")
        )
        assert Path(run(HASH_ONE_KEY, variables).told["folder"]).parent == tmp_path / "all"

    def test_out_of_a_zip_file(self, tmp_path: Path, copied: Path):
        archive = shutil.make_archive(str(tmp_path / "package"), "zip", copied)
        variables = environment(tmp_path, PYTHONPATH=archive)
        assert counted(run(HASH_ONE_KEY, variables)) == (1, 0)
        assert counted(run(HASH_ONE_KEY, variables)) == (0, 1)


def test_a_task_loads_all_kernels_and_no_compiler():
    variables = {"TMPDIR": tempfile.gettempdir(), "PYTHONPATH": str(PACKAGE.parent)}
    run(IMPORT_WHAT_A_TASK_DOES, {**os.environ, **variables})
    second = run(IMPORT_WHAT_A_TASK_DOES, {**os.environ, **variables}).told
    # glibc has an older memcpy for libraries that name no version, slower for large copies.
    assert second.pop("of C") == ["memmove"]
    assert second == {"compilers": [], "compiled": 0, "loaded": 1, "compile_ns": 0}
