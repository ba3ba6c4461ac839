"""``python -m spark_kafka_sink.record.kernels.build [PLATFORM …]``: make the kernels' libraries.

Without PLATFORM, as linux-x86_64, all for which this machine has a linker. A library that is of
these sources already is left alone. ``make kernels`` runs this, and the hook of the package's build
does for the machine's own platform.

The compiler runs in a process of its own with settings that are the same on each machine.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from spark_kafka_sink.record.compiled.library import library_name, platform_name
from spark_kafka_sink.record.kernels.sources import COMPILER, OLDEST_PYTHON, symbol

FOLDER = Path(__file__).resolve().parents[1] / "compiled"
"""Where the libraries are."""
ROOT = FOLDER.parents[2]
_COMPILE = "spark_kafka_sink.record.kernels.compiler"


class BuildError(Exception):
    """A library cannot be made; the message says what to install."""


class Target(NamedTuple):
    """What code is generated for. processor: one that all machines of the platform are like."""

    triple: str
    processor: str
    linked: tuple[str, ...]


# What is for debuggers is half of a file. Nothing of C's library: memmove is in the process that
# loads it, whatever library it is of.
_ELF = ("-shared", "-s", "-z", "noexecstack", "--build-id=none")
_MACH_O = ("-dylib", "-undefined", "dynamic_lookup", "-platform_version", "macos", "11.0", "11.0")
# x86-64-v2: every processor since about 2009; NumPy asks for no less.
TARGETS = {
    "linux-x86_64": Target("x86_64-unknown-linux-gnu", "x86-64-v2", (*_ELF, "-m", "elf_x86_64")),
    "linux-aarch64": Target("aarch64-unknown-linux-gnu", "generic", (*_ELF, "-m", "aarch64linux")),
    "darwin-arm64": Target("arm64-apple-macosx11.0", "apple-m1", (*_MACH_O, "-arch", "arm64")),
    "darwin-x86_64": Target("x86_64-apple-macosx11.0", "x86-64-v2", (*_MACH_O, "-arch", "x86_64")),
}


def linker_for(platform: str) -> str | None:
    """Return the command that links for ``platform``; None if this machine has none."""
    if platform.startswith("linux-") and shutil.which("ld.lld"):
        return "ld.lld"
    return "ld" if platform == platform_name() and shutil.which("ld") else None


def build(platforms: list[str], folder: Path = FOLDER) -> list[Path]:
    """Write the libraries of ``platforms`` into ``folder`` and return their paths.

    Raises BuildError where one cannot be compiled or linked; no file is changed then.
    """
    linkers = {platform: _known_linker(platform) for platform in platforms}
    with tempfile.TemporaryDirectory(prefix="pykafka-sink-build-") as made:
        _compile(Path(made), platforms)
        for platform, linker in linkers.items():
            _link(linker, platform, Path(made))
        return [_placed(Path(made) / library_name(one), folder) for one in platforms]


def is_current(path: Path) -> bool:
    """Tell whether the file is a library of these sources."""
    return path.is_file() and symbol().encode() in path.read_bytes()


def _known_linker(platform: str) -> str:
    if platform not in TARGETS:
        raise BuildError(f"there is no {platform}: kernels are made for {', '.join(TARGETS)}")
    linker = linker_for(platform)
    if linker is None:
        own = "binutils (ld) or lld (ld.lld)" if platform == platform_name() else "lld (ld.lld)"
        if platform.startswith("darwin-"):
            own = "Xcode's command line tools, on macOS: xcode-select --install"
        raise BuildError(f"no linker for {platform}: install {own}")
    return linker


def _compile(folder: Path, platforms: list[str]) -> None:
    if sys.version_info < OLDEST_PYTHON:
        needed = ".".join(map(str, OLDEST_PYTHON))
        raise BuildError(
            f"compiling kernels needs Python {needed} or later; an installation from a wheel or "
            "from an sdist has them"
        )
    wanted = [f"{one}={TARGETS[one].triple}={TARGETS[one].processor}" for one in platforms]
    done = subprocess.run(
        [sys.executable, "-m", _COMPILE, str(folder), *wanted],
        cwd=ROOT,
        env=_compilers_environment(folder),
        check=False,
    )
    if done.returncode:
        raise BuildError(f"the kernels cannot be compiled: {' '.join(COMPILER)} has failed")


def _compilers_environment(folder: Path) -> dict[str, str]:
    """Nothing of the machine's processor, and of the user's settings, decides on the result.

    Loops are vectorised once, for the target; numba would do so before, for this processor.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA_")}
    of_host = TARGETS.get(f"linux-{platform_name().partition('-')[2]}")
    return {
        **kept,
        "NUMBA_CPU_NAME": of_host.processor if of_host else "generic",
        "NUMBA_CPU_FEATURES": "",
        "NUMBA_LOOP_VECTORIZE": "0",
        "NUMBA_SLP_VECTORIZE": "0",
        # pip names the packages that a build needs there.
        "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))),
        # Compiled Python goes by time and size of its source, which may be the same.
        "PYTHONPYCACHEPREFIX": str(folder / "pycache"),
    }


def _link(linker: str, platform: str, folder: Path) -> None:
    output, unlinked = folder / library_name(platform), folder / f"{platform}.o"
    command = [linker, *TARGETS[platform].linked, "-o", str(output), str(unlinked)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BuildError(f"{' '.join(command)} has failed:\n{done.stderr}")


def _placed(made: Path, folder: Path) -> Path:
    """In one step: a process that has mapped the old file goes on with that."""
    part = folder / f".{made.name}.part"
    shutil.copyfile(made, part)
    os.replace(part, folder / made.name)
    return folder / made.name


def main(arguments: list[str] | None = None) -> int:
    """Command line. Returns 1 with a message where a library cannot be made."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("platforms", nargs="*", metavar="PLATFORM", help=", ".join(TARGETS))
    asked = parser.parse_args(arguments).platforms
    wanted = asked or [platform for platform in TARGETS if linker_for(platform)]
    wanted = wanted or [platform_name()]
    missing = [one for one in wanted if not is_current(FOLDER / library_name(one))]
    started = time.monotonic()
    try:
        if missing:
            print(f"building kernels for {', '.join(missing)}, about a minute", flush=True)
            build(missing)
            print(f"built in {time.monotonic() - started:.0f} s", flush=True)
    except BuildError as error:
        print(f"kernels: {error}", file=sys.stderr)
        return 1
    if not asked and len(wanted) == 1:
        print(f"for {wanted[0]} alone: with LLVM's linker (Debian's package lld) for all of Linux")
    return 0


if __name__ == "__main__":
    sys.exit(main())
