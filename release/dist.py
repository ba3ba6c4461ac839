"""``make dist``: build wheel and sdist of the last commit, twice in different environments.

python -m release.dist [--output dist]

With the commit and the versions of the extra ``release``, anyone can build the same bytes: times in
the archives are those of the commit. The first wheel is built from the sdist, the second from the
files themselves. This shows that the sdist contains all that a build needs.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from io import BytesIO
from pathlib import Path

from spark_kafka_sink.record.kernels.sources import PLATFORMS

ROOT = Path(__file__).resolve().parents[1]
# Settings that differ between machines, and must not change the files.
_SURROUNDINGS = (
    {"TZ": "UTC", "LC_ALL": "C", "PYTHONHASHSEED": "1"},
    {"TZ": "Asia/Kathmandu", "LC_ALL": "C.UTF-8", "PYTHONHASHSEED": "2"},
)
_UMASKS = (0o022, 0o077)
SUMS = "SHA256SUMS"


class ReleaseError(Exception):
    """The files of a release cannot be built, or two builds differ."""


def _git(*arguments: str) -> bytes:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True).stdout


def unpack_commit(commit: str, folder: Path) -> None:
    """Unpack the files of ``commit``, without git's own files."""
    with tarfile.open(fileobj=BytesIO(_git("archive", "--format=tar", commit))) as archive:
        archive.extractall(folder, filter="data")


def _build(source: Path, output: Path, number: int, epoch: str, *kinds: str) -> None:
    """Run the build; without kinds, build an sdist, and a wheel from the sdist."""
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(output), *kinds]
    done = subprocess.run(
        [*command, str(source)],
        env={**os.environ, **_SURROUNDINGS[number], "SOURCE_DATE_EPOCH": epoch},
        umask=_UMASKS[number],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise ReleaseError(f"the build failed:\n{done.stdout}{done.stderr}")


def _add_kernels(source: Path) -> None:
    """Compile the libraries that the wheel contains and the commit does not."""
    done = subprocess.run(
        [sys.executable, "-m", "spark_kafka_sink.record.kernels.build", *PLATFORMS],
        cwd=source,
        env={**os.environ, "PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1"},
        check=False,
    )
    if done.returncode:
        raise ReleaseError("the kernels cannot be built: the reason is above")


def build_twice(commit: str, folder: Path) -> list[Path]:
    """Build wheel and sdist of ``commit``. Raises ReleaseError if two builds differ."""
    epoch = _git("log", "-1", "--format=%ct", commit).decode().strip()
    outputs = []
    for number in range(2):
        source = folder / f"source-{number}" / ("nested" * number)
        source.mkdir(parents=True)
        unpack_commit(commit, source)
        _add_kernels(source)
        outputs.append(folder / f"built-{number}")
    _build(folder / "source-0", outputs[0], 0, epoch)
    _build(folder / "source-1" / "nested", outputs[1], 1, epoch, "--sdist", "--wheel")
    first, second = (
        {path.name: path.read_bytes() for path in sorted(output.iterdir())} for output in outputs
    )
    unlike = sorted(name for name in first | second if first.get(name) != second.get(name))
    if unlike:
        raise ReleaseError(f"two builds differ in {', '.join(unlike)}: compare them in {folder}")
    return sorted(outputs[0].iterdir())


def check_metadata(files: list[Path]) -> None:
    """Raise ReleaseError if the package index would reject the files or show them wrongly."""
    names = [str(path) for path in files]
    done = subprocess.run(
        [sys.executable, "-m", "twine", "check", "--strict", *names],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise ReleaseError(f"twine check --strict:\n{done.stdout}{done.stderr}")


def sums(files: list[Path]) -> str:
    """Return lines in the format of ``sha256sum``, sorted by name."""
    digests = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
    return "".join(f"{digests[name]}  {name}\n" for name in sorted(digests))


def main(arguments: list[str] | None = None) -> int:
    """Write the files and their SHA-256 sums; return 1 if that fails."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--output", type=Path, default=ROOT / "dist", help="default: dist")
    output: Path = parser.parse_args(arguments).output
    if _git("status", "--porcelain"):
        print("not committed, so not in the files: see git status", file=sys.stderr)
    folder = Path(tempfile.mkdtemp(prefix="pykafka-sink-dist-"))
    try:
        files = build_twice("HEAD", folder)
        check_metadata(files)
    except ReleaseError as error:
        print(error, file=sys.stderr)
        return 1  # the folder stays, for a comparison
    output.mkdir(parents=True, exist_ok=True)
    for old in (*output.glob("pykafka_sink-*"), *output.glob(SUMS)):
        old.unlink()
    for path in files:
        shutil.copy(path, output)
    (output / SUMS).write_text(sums(files), encoding="utf-8")
    print(sums(files), end="")
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
