"""``python -m spark_kafka_sink.record.kernels.build [PLATFORM …]``: build the kernels' libraries.

A PLATFORM is a name such as linux-x86_64. Without one, the command builds for all platforms for
which this machine has a linker. A library of the current sources is not built again. ``make
kernels`` runs this command; the hook of the package's build runs it for its own platform.

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
"""The folder of the libraries."""
ROOT = FOLDER.parents[2]
_COMPILE = "spark_kafka_sink.record.kernels.compiler"


class BuildError(Exception):
    """A library cannot be built. The message says what to install."""


class Target(NamedTuple):
    """A platform for which code is generated.

    triple: LLVM's name of the platform
    processor: LLVM's name of a processor whose instructions all machines of the platform have
    linked: options of the linker
    """

    triple: str
    processor: str
    linked: tuple[str, ...]


# Symbols for debuggers would be half of a file. On Linux no C library is linked: the process that
# loads the kernels has memmove already, from any C library.
_ELF = ("-shared", "-s", "-z", "noexecstack", "--build-id=none")
_MACH_O = (
    *("-dylib", "-lSystem", "-install_name", "@rpath/kernels.so"),
    *("-platform_version", "macos", "11.0", "11.0"),
)
# Every processor since about 2009 supports x86-64-v2, which NumPy requires too.
TARGETS = {
    "linux-x86_64": Target("x86_64-unknown-linux-gnu", "x86-64-v2", (*_ELF, "-m", "elf_x86_64")),
    "linux-aarch64": Target("aarch64-unknown-linux-gnu", "generic", (*_ELF, "-m", "aarch64linux")),
    "darwin-arm64": Target("arm64-apple-macosx11.0", "apple-m1", (*_MACH_O, "-arch", "arm64")),
    "darwin-x86_64": Target("x86_64-apple-macosx11.0", "x86-64-v2", (*_MACH_O, "-arch", "x86_64")),
}
# macOS loads only libraries that name libSystem. A linker reads in this file, instead of in Apple's
# library, where libSystem is and what it has.
_LIBSYSTEM = """\
--- !tapi-tbd
tbd-version: 4
targets: [ x86_64-macos, arm64-macos ]
install-name: '/usr/lib/libSystem.B.dylib'
exports:
  - targets: [ x86_64-macos, arm64-macos ]
    symbols: [ _memcpy, _memmove, _memset, dyld_stub_binder ]
...
"""
_OWN_LINKERS = {
    "darwin": "Xcode's command line tools (xcode-select --install) or ",
    "linux": "binutils (ld) or ",
}


def linker_for(platform: str) -> tuple[str, ...]:
    """Return the command that links for ``platform``; empty if this machine has none."""
    if shutil.which("lld"):
        return ("lld", "-flavor", "darwin" if platform.startswith("darwin-") else "gnu")
    return ("ld",) if platform == platform_name() and shutil.which("ld") else ()


def build(platforms: list[str], folder: Path = FOLDER) -> list[Path]:
    """Write the libraries of ``platforms`` into ``folder`` and return their paths.

    Raises BuildError if a library cannot be compiled or linked; no file is changed then.
    """
    linkers = {platform: _require_linker(platform) for platform in platforms}
    with tempfile.TemporaryDirectory(prefix="pykafka-sink-build-") as built:
        _compile(Path(built), platforms)
        for platform, linker in linkers.items():
            _link(linker, platform, Path(built))
        return [_install(Path(built) / library_name(one), folder) for one in platforms]


def is_current(path: Path) -> bool:
    """Return True if the file is a library of the current sources."""
    return path.is_file() and symbol().encode() in path.read_bytes()


def _require_linker(platform: str) -> tuple[str, ...]:
    if platform not in TARGETS:
        raise BuildError(f"there is no {platform}: kernels are made for {', '.join(TARGETS)}")
    linker = linker_for(platform)
    if not linker:
        own = _OWN_LINKERS.get(sys.platform, "") if platform == platform_name() else ""
        raise BuildError(f"no linker for {platform}: install {own}lld")
    return linker


def _compile(folder: Path, platforms: list[str]) -> None:
    if sys.version_info < OLDEST_PYTHON:
        needed = ".".join(map(str, OLDEST_PYTHON))
        raise BuildError(
            f"compiling kernels needs Python {needed} or later; an installation from a wheel or "
            "from an sdist has them"
        )
    wanted = [f"{one}={TARGETS[one].triple}={TARGETS[one].processor}" for one in platforms]
    result = subprocess.run(
        [sys.executable, "-m", _COMPILE, str(folder), *wanted],
        cwd=ROOT,
        env=_compiler_environment(folder),
        check=False,
    )
    if result.returncode:
        raise BuildError(f"the kernels cannot be compiled: {' '.join(COMPILER)} has failed")


def _compiler_environment(folder: Path) -> dict[str, str]:
    """Return an environment in which the result does not depend on machine and user settings.

    LLVM vectorises loops for the target. numba's own vectorisation, which would run before and for
    this machine's processor, is off.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA_")}
    host_target = TARGETS.get(f"linux-{platform_name().partition('-')[2]}")
    return {
        **kept,
        "NUMBA_CPU_NAME": host_target.processor if host_target else "generic",
        "NUMBA_CPU_FEATURES": "",
        "NUMBA_LOOP_VECTORIZE": "0",
        "NUMBA_SLP_VECTORIZE": "0",
        # pip passes the packages that a build needs in PYTHONPATH.
        "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))),
        # Python detects stale bytecode by time and size of the source, which may be unchanged.
        "PYTHONPYCACHEPREFIX": str(folder / "pycache"),
    }


def _link(linker: tuple[str, ...], platform: str, folder: Path) -> None:
    output, unlinked = folder / library_name(platform), folder / f"{platform}.o"
    (folder / "libSystem.tbd").write_text(_LIBSYSTEM, encoding="ascii")
    command = [*linker, *TARGETS[platform].linked, f"-L{folder}", "-o", str(output), str(unlinked)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        raise BuildError(f"{' '.join(command)} has failed:\n{result.stderr}")


def _install(built: Path, folder: Path) -> Path:
    """Replace the file in one step: a process that has mapped the old file keeps the old file."""
    part = folder / f".{built.name}.part"
    shutil.copyfile(built, part)
    os.replace(part, folder / built.name)
    return folder / built.name


def main(arguments: list[str] | None = None) -> int:
    """Run the command line. Return 1 with a message if a library cannot be built."""
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
        print(f"for {wanted[0]} alone: lld (Debian's package lld) links for all platforms")
    return 0


if __name__ == "__main__":
    sys.exit(main())
