"""A virtual environment for each pair of a Spark and a Python, made once and kept."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / ".venv-versions"


class Pair(NamedTuple):
    """Versions of Spark ("4.0.2") and of Python ("3.12")."""

    spark: str
    python: str

    def __str__(self):
        return f"spark-{self.spark}-python-{self.python}"


PAIRS = (
    Pair("3.5.6", "3.9"),
    Pair("3.5.9", "3.11"),
    Pair("4.0.0", "3.9"),
    Pair("4.0.2", "3.12"),
    Pair("4.1.4", "3.10"),
    Pair("4.1.4", "3.13"),
    Pair("4.2.1", "3.12"),
    Pair("4.3.0", "3.11"),
    Pair("4.3.0", "3.13"),
    Pair("4.3.0", "3.14"),
)
"""Each Spark with the oldest and the newest Python that both it and this sink take."""
ON_CLUSTERS = (
    Pair("3.5.7", "3.11"),
    Pair("4.0.2", "3.12"),
    Pair("4.1.4", "3.13"),
    Pair("4.2.1", "3.12"),
    Pair("4.3.0", "3.13"),
)
"""One pair of each minor version: what runs on clusters and with Spark Connect."""

_OF_CONNECT = ("grpcio", "grpcio-status", "googleapis-common-protos", "pyyaml")
"""What Spark Connect needs, the functions of foreachBatch on its server, and ``spark-pipelines``."""


def interpreter(version):
    """A Python of that version on this machine: on the PATH, or one of pyenv's."""
    for command in _candidates(version):
        found = subprocess.run(
            [command, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"],
            capture_output=True,
            text=True,
            check=False,
        )
        if found.stdout.strip() == version:
            return command
    return None


def _candidates(version):
    on_path = shutil.which(f"python{version}")
    if on_path is not None:
        yield on_path
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    yield from map(str, sorted(pyenv.glob(f"versions/{version}.*/bin/python")))


def environment(pair, python):
    """The interpreter of an environment with ``pair.spark`` and this repository's package.

    pandas: Spark 3.5 asks for it before mapInArrow, and no Spark 4 takes pandas 3. Not as
    ``pyspark[connect]``, of which 3.5's wants a NumPy that is too old for the newest pyarrow.
    """
    packages = ["--editable", str(ROOT), f"pyspark=={pair.spark}", "pandas<3", *_OF_CONNECT]
    return made(str(pair), python, packages, (ROOT / "pyproject.toml").read_bytes())


def made(name, python, packages, stamp=b""):
    """The interpreter of an environment with ``packages``, made once: again when these or ``stamp`` change."""
    folder = FOLDER / name
    made_of = folder / "made-of.txt"
    content = hashlib.sha256(stamp + repr(packages).encode()).hexdigest()
    if not made_of.exists() or made_of.read_text(encoding="utf-8") != content:
        subprocess.run([python, "-m", "venv", "--clear", str(folder)], check=True)
        pip = [str(folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check"]
        subprocess.run([*pip, "install", "--quiet", *packages], check=True)
        made_of.write_text(content, encoding="utf-8")
    return folder / "bin" / "python"


_OF_SPARK = ("PYTHON", "PYSPARK", "SPARK")


def clean_environment(**more):
    """Without what names a Spark or a Python."""
    kept = {n: v for n, v in os.environ.items() if not n.startswith(_OF_SPARK)}
    return {**kept, **more}
