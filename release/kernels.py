"""``python -m release.kernels [FOLDER]``: the kernels' libraries that a release has in its wheel.

FOLDER is the root of a checkout, this one if it is not given. Old libraries there are removed. All
are linked by LLVM's linker, on Debian of the package lld; without it there is only the one for this
machine's processor. Machine code depends on the versions of numba and llvmlite alone, so that two
builds are the same.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PROCESSORS = ("aarch64", "x86_64")
_FOLDER = Path("spark_kafka_sink") / "record" / "kernels"
_CODE = """
import sys
from pathlib import Path
from spark_kafka_sink.record.kernels.build import build
from spark_kafka_sink.record.kernels.library import packaged_name
triple, machine, *linker = sys.argv[1:]
path = Path("spark_kafka_sink", "record", "kernels", packaged_name("linux-" + machine))
build(path, triple, linker or None)
print(path)
"""


def build_libraries(root: Path) -> list[Path]:
    """Write the libraries of the sources in ``root``, for all processors that can be linked for.

    Raises CalledProcessError if one cannot be compiled or linked.
    """
    for old in (root / _FOLDER).glob("kernels-*.so"):
        old.unlink()
    return [root / _built(root, processor) for processor in PROCESSORS if _linker(processor)]


def _built(root: Path, processor: str) -> str:
    triple = f"{processor}-unknown-linux-gnu"
    done = subprocess.run(
        [sys.executable, "-c", _CODE, triple, processor, *_linker(processor)],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def _linker(processor: str) -> list[str]:
    """The command that links for ``processor``; empty if it is not on this machine."""
    emulation = {"aarch64": "aarch64linux", "x86_64": "elf_x86_64"}[processor]
    if shutil.which("ld.lld"):
        return ["ld.lld", "-m", emulation]
    if processor == platform.machine() and shutil.which("ld"):
        return ["ld", "-m", emulation]
    return []


def main() -> int:
    """Build, and print the paths; 1 if one is missing."""
    built = build_libraries(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT)
    for path in built:
        print(path)
    if len(built) < len(PROCESSORS):
        print("not all processors: install LLVM's linker (ld.lld)", file=sys.stderr)
    return int(len(built) < len(PROCESSORS))


if __name__ == "__main__":
    sys.exit(main())
