"""``python -m spark_kafka_sink.record.kernels.build FILE``: compile all kernels into a file.

A process of its own, so that those which write records never load the compiler: 50 MiB and half a
second in each. Where the machine has a linker the file is a shared library, else an object file.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

_LINKERS = ("ld", "ld.lld")
# What is for debuggers is half of the file. Nothing of C's library: memmove is in the process that
# loads it, whatever library it is of.
_LINKED = ("-shared", "-s", "-z", "noexecstack", "--build-id=none")


def build(path: Path, triple: str | None = None, linker: list[str] | None = None) -> None:
    """Write all kernels to ``path``: an object file if there is no linker, or it fails.

    triple: LLVM's name of the platform, this machine's if None
    linker: command that links for it; None for what is found here, for this machine
    """
    from spark_kafka_sink.record.kernels.compiler import object_code

    code = object_code(triple)
    command = _linker() if linker is None else linker
    with tempfile.TemporaryDirectory(prefix="pykafka-sink-build-") as folder:
        unlinked, linked = Path(folder) / "kernels.o", Path(folder) / "kernels.so"
        unlinked.write_bytes(code)
        arguments = [*command, *_LINKED, "-o", str(linked), str(unlinked)]
        is_linked = bool(command) and _runs(arguments)
        path.write_bytes(linked.read_bytes() if is_linked else code)


def _linker() -> list[str]:
    # Elsewhere the files have another form, and linkers other options.
    names = _LINKERS if sys.platform == "linux" else ()
    return next(([name] for name in names if shutil.which(name)), [])


def _runs(command: list[str]) -> bool:
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


if __name__ == "__main__":
    build(Path(sys.argv[1]))
