"""A virtual environment that has the sink and is not activated, beside a ``python3`` without it."""

from __future__ import annotations

import os
import subprocess
import sysconfig
import venv
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
_OF_PYTHON_AND_SPARK = ("PYTHON", "PYSPARK", "SPARK", "VIRTUAL_ENV")


@dataclass(frozen=True)
class FreshPython:
    """The Python of a virtual environment, run by its path."""

    python: Path
    environment: dict[str, str]

    @classmethod
    def create(cls, folder):
        """Two environments: one sees what is installed for these tests, the other's ``python3``
        comes first on the PATH and has no packages at all.
        """
        for name in ("with-sink", "on-path"):
            venv.create(folder / name, symlinks=True)
        (packages,) = (folder / "with-sink").glob("lib/python*/site-packages")
        found = f"{REPOSITORY}\n{sysconfig.get_path('purelib')}\n"
        (packages / "packages-of-the-tests.pth").write_text(found, encoding="utf-8")
        environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(_OF_PYTHON_AND_SPARK)
        }
        environment["PATH"] = f"{folder / 'on-path' / 'bin'}{os.pathsep}{environment['PATH']}"
        return cls(folder / "with-sink" / "bin" / "python", environment)

    def run(self, script):
        """Run ``script`` in its own folder."""
        return subprocess.run(
            [str(self.python), str(script)],
            env=self.environment,
            cwd=script.parent,
            capture_output=True,
            text=True,
            check=False,
        )
