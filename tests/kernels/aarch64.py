"""``make test-aarch64``: run the tests of the kernels on the aarch64 library, emulated by qemu, and on
the arm64 library for macOS, which ``mach_o`` loads there.

The command assembles an interpreter for aarch64 from Debian's packages and wheels in .venv-aarch64;
this machine's interpreter stays unchanged. First run, as root, ``dpkg --add-architecture arm64 &&
apt-get update`` and ``apt-get install --no-install-recommends qemu-user lld``.

Some tests do not run there: ``test_library`` and one of Protobuf start processes, which an emulated
process cannot do; Kafka and Spark need Java. Speed is not measured.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / ".venv-aarch64"
TESTS = (
    *("tests/kernels/test_record_kernels.py", "tests/kernels/test_hash_kernels.py"),
    *("tests/formats/test_avro_kernel.py", "tests/formats/test_json_kernel.py"),
    *("tests/formats/test_protobuf_kernel.py", "tests/formats/test_variant_kernel.py"),
    "tests/golden/test_batches.py",
)
_STARTS_A_PROCESS = "tests/formats/test_protobuf_kernel.py::test_tasks_need_no_package_of_protobuf"
_OF_DEBIAN = (
    *("libc6", "libgcc-s1", "libstdc++6", "zlib1g", "libexpat1", "libssl3"),
    *("libffi8", "libbz2-1.0", "liblzma5", "libsqlite3-0", "libuuid1", "libcrypt1"),
)
_WHEELS = (
    *("pytest", "pytest-timeout", "hypothesis", "numpy", "pyarrow", "lz4", "zstandard", "crc32c"),
    *("isal", "mmh3", "cryptography", "protobuf", "jsonschema", "psutil", "cramjam", "lief"),
)
# In plain Python, and on no index as wheels: these are used where this interpreter has them.
_OF_THIS_INTERPRETER = ("pyspark", "py4j")
_PLATFORMS = ("manylinux2014_aarch64", "manylinux_2_17_aarch64", "manylinux_2_28_aarch64")


def _python():
    [found] = (FOLDER / "root" / "usr" / "bin").glob("python3.*[0-9]")
    return found


def prepare():
    """Fetch the interpreter and the packages, unless they exist."""
    if (FOLDER / "installed").exists():
        return
    shutil.rmtree(FOLDER, ignore_errors=True)
    debs = FOLDER / "debs"
    debs.mkdir(parents=True)
    depends = subprocess.run(
        ["apt-cache", "depends", "python3-minimal:arm64"],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    ).stdout
    [version] = {
        word for word in depends.replace(":arm64", "").split() if word.startswith("python3.")
    }
    name = version.removesuffix("-minimal")
    packages = [f"{name}-minimal", f"lib{name}-minimal", f"lib{name}-stdlib", *_OF_DEBIAN]
    fetch = ["apt-get", "download", "-q", *(f"{package}:arm64" for package in packages)]
    subprocess.run(fetch, cwd=debs, check=True)
    for deb in debs.glob("*.deb"):
        subprocess.run(["dpkg-deb", "-x", str(deb), str(FOLDER / "root")], check=True)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--only-binary", ":all:"]
    where = ["--implementation", "cp", "--python-version", name.removeprefix("python")]
    for platform in _PLATFORMS:
        where += ["--platform", platform]
    subprocess.run([*pip, *where, "--target", str(FOLDER / "site"), *_WHEELS], check=True)
    for package in _OF_THIS_INTERPRETER:
        spec = find_spec(package)
        assert spec, f"{package} is not installed"
        [folder] = spec.submodule_search_locations or []
        (FOLDER / "site" / package).symlink_to(folder)
    (FOLDER / "installed").touch()


def main():
    """Run the tests. Return pytest's exit code."""
    prepare()
    command = ["qemu-aarch64", "-L", str(FOLDER / "root"), str(_python()), "-m", "pytest", "-q"]
    without = ["-p", "no:cacheprovider", "-o", "addopts=", "-m", "not long", "--noconftest"]
    # Emulation takes ten times as long: the profile for CI has no deadline for an example.
    without += ["--hypothesis-profile=ci", "--deselect", _STARTS_A_PROCESS]
    path = os.pathsep.join((str(FOLDER / "site"), str(ROOT)))
    return max(
        subprocess.run(
            [*command, *without, *plugin, *(sys.argv[1:] or TESTS)],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"},
            check=False,
        ).returncode
        for plugin in ((), ("-p", "tests.kernels.mach_o"))
    )


if __name__ == "__main__":
    sys.exit(main())
