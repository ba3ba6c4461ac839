"""A library of kernels is built from these sources alone, and is the same on each machine.

A process only loads it. These tests compile one small kernel, in a copy of the package that has no
other kernel.
"""

from __future__ import annotations

import ast
import os
import platform
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pytest

from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.record.compiled import library
from spark_kafka_sink.record.compiled.calls import KERNELS
from spark_kafka_sink.record.compiled.library import library_name, platform_name
from spark_kafka_sink.record.kernels import memory
from spark_kafka_sink.record.kernels.build import linker_for
from spark_kafka_sink.record.kernels.sources import COMPILER, symbol

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "spark_kafka_sink"
FOLDER = PACKAGE / "record" / "kernels"
BUILD = "spark_kafka_sink.record.kernels.build"
# The second one has another linker, and a signature.
BUILT = [platform_name(), *(["darwin-arm64"] if linker_for("darwin-arm64") else [])]
ONE_KERNEL = """
from spark_kafka_sink.record.kernels.memory import int64_array, kernel

@kernel
def sum_of(address: int, count: int) -> int:
    numbers = int64_array(address, count)
    total = 0
    for number in range(count):
        total += numbers[number] ^ number
    return total
"""
ITS_CALL = """
import ctypes
from spark_kafka_sink.record.compiled.library import address_in_library
class Kernel:
    parameters_count = 2
KERNELS = {"sum_of": Kernel()}
def sum_of(*numbers):
    pointer = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
    return pointer(address_in_library("sum_of"))(*numbers)
"""
SUM = """
import array, sys
from spark_kafka_sink.record.compiled.calls import sum_of
numbers = array.array("q", range(1000))
print(sum_of(numbers.buffer_info()[0], 1000), *sorted({"numba", "llvmlite"} & set(sys.modules)))
"""
THE_SUM = "0"  # Each number is XORed with itself.
# Start the compiler as the build does, on a machine with another processor.
OTHER_PROCESSOR = """
import runpy, sys
import llvmlite.binding as llvm
llvm.get_host_cpu_name = lambda: "{name}"
llvm.get_host_cpu_features = lambda: llvm.FeatureMap({features})
sys.argv[0] = "compiler"
runpy.run_module("spark_kafka_sink.record.kernels.compiler", run_name="__main__", alter_sys=True)
"""
WIDE = dict.fromkeys(["avx", "avx2", "avx512f", "avx512vl", "avx512dq", "fma", "bmi2"], True)

# Compiling takes as long as the machine's other work allows.
pytestmark = [pytest.mark.timeout(1800), pytest.mark.slow]
compiles = pytest.mark.skipif(sys.version_info < (3, 10), reason="the compiler needs Python 3.10")


@pytest.fixture
def copied(tmp_path):
    """Return a folder with a copy of the package that has only one kernel."""
    return copy_of_the_package(tmp_path / "copy")


def copy_of_the_package(root):
    target = root / "spark_kafka_sink"
    ignored = shutil.ignore_patterns("__pycache__", "*.so")
    for room in ("base", "record"):
        shutil.copytree(PACKAGE / room, target / room, ignore=ignored)
    shutil.copy(PACKAGE / "__init__.py", target)
    kept = ("__init__", "build", "compiler", "sources", "memory")
    for path in (target / "record" / "kernels").glob("*.py"):
        if path.stem not in kept:
            path.unlink()
    (target / "record" / "kernels" / "one.py").write_text(ONE_KERNEL)
    (target / "record" / "compiled" / "calls.py").write_text(ITS_CALL)
    return root


def run(root, *words, **variables):
    return subprocess.run(
        [sys.executable, *words],
        # Python searches the working directory before PYTHONPATH.
        cwd=root if root.is_dir() else root.parent,
        env={**os.environ, "PYTHONPATH": str(root), **variables},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def built_once(tmp_path_factory):
    """Return such a copy with its library. Leave it as it is: the compiler takes seconds."""
    root = copy_of_the_package(tmp_path_factory.mktemp("built") / "copy")
    done = run(root, "-m", BUILD, *BUILT)
    assert done.returncode == 0, done.stderr
    assert "1 of 1  sum_of" in done.stdout
    return root


@pytest.fixture
def built(built_once, tmp_path):
    """Return a copy of the test's own."""
    return Path(shutil.copytree(built_once, tmp_path / "copy"))


def library_of(root):
    return root / "spark_kafka_sink" / "record" / "compiled" / library_name(platform_name())


@compiles
class TestBuilt:
    def test_a_process_loads_it_and_no_compiler(self, built, tmp_path):
        """Also out of a zip file, and without the sources, which a wheel does not contain."""
        archive = shutil.make_archive(str(tmp_path / "package"), "zip", built)
        for root in (built, Path(archive)):
            done = run(root, "-c", SUM)
            assert (done.stdout, done.stderr) == (f"{THE_SUM}\n", "")
        shutil.rmtree(built / "spark_kafka_sink" / "record" / "kernels")
        assert run(built, "-c", SUM).stdout == f"{THE_SUM}\n"

    def test_it_is_not_built_twice(self, built):
        before = library_of(built).stat()
        assert "building" not in run(built, "-m", BUILD, platform_name()).stdout
        after = library_of(built).stat()
        assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)

    def test_that_of_other_sources_is_refused_with_the_command_that_builds_it(self, built):
        path = built / "spark_kafka_sink" / "record" / "kernels" / "one.py"
        times = path.stat()
        path.write_text(ONE_KERNEL.replace("^", "&"))
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
        done = run(built, "-c", SUM)
        assert done.returncode == 1
        assert "is of other sources than those of this checkout" in done.stderr
        assert f"make kernels, or python -m {BUILD}" in done.stderr
        assert run(built, "-m", BUILD, platform_name()).returncode == 0
        assert run(built, "-c", SUM).stdout == f"{sum(range(1000))}\n"

    def test_a_platform_without_one_is_named_with_those_that_have_one(self, built):
        other = 'import platform; platform.machine = lambda: "riscv64"\n'
        done = run(built, "-c", other + SUM)
        assert done.returncode == 1
        known = ", ".join(sorted(BUILT))
        assert f"no kernels for {sys.platform}-riscv64, it has them for {known}" in done.stderr
        shutil.rmtree(built / "spark_kafka_sink" / "record" / "kernels")
        assert "install pykafka-sink from its sdist" in run(built, "-c", other + SUM).stderr

    def test_a_damaged_one_is_an_error_that_names_it(self, built):
        library_of(built).write_bytes(b"not a library")
        done = run(built, "-c", SUM)
        assert f"the kernels' library {library_of(built)} cannot be loaded" in done.stderr

    def test_settings_of_the_compiler_change_nothing(self, built):
        before = {path: path.read_bytes() for path in library_of(built).parent.glob("*.so")}
        assert len(before) == len(BUILT)
        for path in before:
            path.unlink()
        foreign = {"NUMBA_OPT": "0", "NUMBA_DISABLE_JIT": "1", "NUMBA_CPU_NAME": "generic"}
        assert run(built, "-m", BUILD, *BUILT, **foreign).returncode == 0
        assert {path: path.read_bytes() for path in before} == before

    @pytest.mark.long  # `make dist` compares two builds as well
    @pytest.mark.skipif(platform.machine() != "x86_64", reason="two processors of x86_64")
    def test_two_processors_make_the_same_code(self, copied, tmp_path):
        """The test fails if numba vectorises for the processor of this machine."""
        codes = []
        for name, features in (("skylake-avx512", WIDE), ("nehalem", {"sse4.2": True})):
            (tmp_path / name).mkdir()
            code = OTHER_PROCESSOR.format(name=name, features=features)
            start = (
                f"from {BUILD} import _compiler_environment as made, TARGETS\n"
                "import os, subprocess, sys; from pathlib import Path\n"
                f"folder = Path({str(tmp_path / name)!r})\n"
                "one = '{}={}={}'.format('x', *TARGETS['linux-x86_64'][:2])\n"
                f"command = [sys.executable, '-c', {code!r}, str(folder), one]\n"
                "sys.exit(subprocess.run(command, env=made(folder)).returncode)\n"
            )
            done = run(copied, "-c", start)
            assert done.returncode == 0, done.stderr
            codes.append((tmp_path / name / "x.o").read_bytes())
        assert codes[0] == codes[1]


def test_a_build_that_cannot_be_done_is_told(copied):
    for target, linker in ((platform_name(), "install"), ("darwin-arm64", "install lld\n")):
        done = run(copied, "-m", BUILD, target, PATH=str(copied))
        assert done.returncode == 1
        assert f"no linker for {target}: {linker}" in done.stderr
    done = run(copied, "-m", BUILD, "plan9-mips")
    assert done.returncode == 1
    assert "there is no plan9-mips: kernels are made for linux-x86_64, " in done.stderr
    assert not [*copied.rglob("*.so"), *copied.rglob("*.o")]


@compiles
def test_another_compiler_is_refused(copied):
    (copied / "numba.py").write_text("raise ImportError('numba is not there')")
    done = run(copied, "-m", BUILD, platform_name())
    assert done.returncode == 1
    assert f"the kernels cannot be compiled: {' '.join(COMPILER)} has failed" in done.stderr
    assert not list(copied.rglob("*.so"))


def test_the_library_of_this_checkout_is_of_its_sources():
    path = library_of(ROOT)
    assert symbol().encode() in path.read_bytes(), f"python -m {BUILD}"


def test_every_kernel_has_a_name_and_a_count():
    for path in FOLDER.glob("*.py"):
        if path.stem not in ("__init__", "build", "compiler"):
            import_module(f"{memory.__package__}.{path.stem}")
    counts = {name: source.__code__.co_argcount for name, source in memory.KERNELS.items()}
    assert {name: kernel.parameters_count for name, kernel in KERNELS.items()} == counts


def test_the_sources_of_a_library_are_all_that_kernels_import():
    for path in FOLDER.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("spark_kafka"):
                module = str(node.module).removeprefix("spark_kafka_sink.")
                allowed = ("record.compiled", "record.kernels")
                assert module.startswith(allowed), f"{path.name} imports {module}"


def test_a_task_imports_no_kernel_s_source():
    code = (
        "import sys\nfrom spark_kafka_sink.spark.task import load_all\nload_all()\n"
        "import spark_kafka_sink.formats.encoder\n"
        "print(*(n for n in sys.modules if n.startswith('spark_kafka_sink.record.kernels.')),"
        " *({'numba', 'llvmlite'} & set(sys.modules)))"
    )
    done = run(ROOT, "-c", code)
    # In a checkout, a process imports the module that computes the digest of the sources.
    assert done.stdout.split() == ["spark_kafka_sink.record.kernels.sources"], done.stderr


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Return a folder that replaces the package's folder of libraries."""
    resources = SimpleNamespace(files=lambda package: tmp_path)
    monkeypatch.setattr(library, "importlib", SimpleNamespace(resources=resources))
    return tmp_path


def test_of_the_package_s_files_the_libraries_are_listed(folder):
    with pytest.raises(ConfigError, match="it has them for no platform"):
        library.check_libraries()
    for name in ("kernels-linux-b.so", "kernels-linux-a.so", "kernels-notes.txt", "other.so"):
        (folder / name).write_bytes(symbol().encode())
    assert library.check_libraries() == ["linux-a", "linux-b"]
    (folder / "kernels-linux-b.so").write_bytes(b"of other sources")
    with pytest.raises(ConfigError, match="is of other sources than those of this checkout"):
        library.check_libraries()


def test_a_platform_has_one_name(monkeypatch):
    monkeypatch.setattr(platform, "machine", lambda: "AARCH64")
    assert platform_name() == f"{sys.platform}-aarch64"


def test_what_cannot_be_loaded_out_of_a_zip_file_leaves_nothing_open(monkeypatch):
    opened = os.open(os.devnull, os.O_RDONLY)
    os.close(opened)
    with pytest.raises(OSError, match="file too short|invalid ELF|/proc/self/fd"):
        library._loaded(b"no library")
    again = os.open(os.devnull, os.O_RDONLY)
    os.close(again)
    assert again == opened
    monkeypatch.delattr(os, "memfd_create")
    with pytest.raises(ConfigError, match="out of a zip file the kernels are loaded on Linux"):
        library._loaded(b"no library")
