"""Jars from Maven Central, fetched with the Ivy that pyspark ships, and kept.

Every set of jars has a folder of its own in the cache folder: ``PYKAFKA_SINK_CACHE``, else
``$XDG_CACHE_HOME/pykafka-sink``, else ``~/.cache/pykafka-sink``. A folder appears under its name
only when it is complete, so a download may be interrupted, or run twice at once.
"""

from __future__ import annotations

import fcntl
import importlib.util
import logging
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import quoteattr

from spark_kafka_sink.base.environment import CACHE_VARIABLE, named_folder, user_cache_folder
from spark_kafka_sink.localkafka.errors import LocalKafkaError
from spark_kafka_sink.localkafka.java import find_java

IVY_SETTINGS_VARIABLE = "PYKAFKA_SINK_IVY_SETTINGS"

_MANIFEST = "modules.txt"
_PART_PREFIX = ".part-"
_IVY_TIMEOUT_S = 900
_IVY_OUTPUT_LINES = 40

_LOG = logging.getLogger(__name__)


class MavenModule(NamedTuple):
    """``group:artifact:version``."""

    group: str
    artifact: str
    version: str

    @classmethod
    def parse(cls, coordinates: str) -> MavenModule:
        """Raises LocalKafkaError for text that is not three parts."""
        parts = coordinates.split(":")
        if len(parts) != 3 or not all(parts):
            raise LocalKafkaError(f"'{coordinates}' is not group:artifact:version")
        return cls(*parts)

    @property
    def jar_name(self) -> str:
        return f"{self.artifact}-{self.version}.jar"


def cache_folder() -> Path:
    """Where fetched jars are kept. It need not exist.

    Raises LocalKafkaError if no variable names it and there is no home directory.
    """
    folder = named_folder(CACHE_VARIABLE) or user_cache_folder()
    if folder is None:
        raise LocalKafkaError(
            f"there is no home directory to keep downloads in: set {CACHE_VARIABLE} to a folder "
            "that can be written"
        )
    return folder


def fetch_jars(modules: Sequence[str], name: str, transitive: bool = True) -> list[Path]:
    """The jars of Maven ``modules`` (``group:artifact:version``), from the cache or the network.

    ``name`` is their folder in the cache; if it holds the jars of other modules, they are
    replaced. With ``transitive`` False, dependencies are left out. Needs Java and pyspark.

    Raises LocalKafkaError when something is missing or the download fails.
    """
    parsed = [MavenModule.parse(coordinates) for coordinates in modules]
    manifest = "".join(f"{line}\n" for line in (f"transitive={transitive}", *modules))
    root = cache_folder()
    folder = root / name
    if not _is_complete(folder, manifest):
        with _locked(root):
            if not _is_complete(folder, manifest):
                _fetch_into(folder, parsed, manifest, transitive)
    return sorted(folder.glob("*.jar"))


def _is_complete(folder: Path, manifest: str) -> bool:
    try:
        return (folder / _MANIFEST).read_text(encoding="utf-8") == manifest
    except OSError:
        return False


@contextmanager
def _locked(root: Path) -> Iterator[None]:
    """One process at a time. The lock goes with its process, so it cannot be left behind."""
    try:
        root.mkdir(parents=True, exist_ok=True)
        lock = (root / ".lock").open("a")
    except OSError as error:
        raise LocalKafkaError(
            f"the cache folder {root} cannot be written ({error.strerror}): set {CACHE_VARIABLE} "
            "to a folder that can"
        ) from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _fetch_into(
    folder: Path, modules: Sequence[MavenModule], manifest: str, transitive: bool
) -> None:
    """Fetch beside ``folder``, then move there. The lock is held."""
    for stale in folder.parent.glob(f"{_PART_PREFIX}*"):
        shutil.rmtree(stale, ignore_errors=True)  # of a process that was killed
    part = Path(tempfile.mkdtemp(prefix=_PART_PREFIX, dir=folder.parent))
    try:
        _LOG.info("fetching %s into %s", ", ".join(":".join(m) for m in modules), folder)
        _run_ivy(part, modules, transitive)
        for module in modules:
            if not (part / module.jar_name).is_file():
                raise LocalKafkaError(f"Ivy fetched no {module.jar_name}")
        (part / _MANIFEST).write_text(manifest, encoding="utf-8")
        part.chmod(0o755)  # mkdtemp makes it private; a shared cache must be readable
        # A folder that somebody reads jars from right now keeps its open files.
        shutil.rmtree(folder, ignore_errors=True)
        part.rename(folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _run_ivy(part: Path, modules: Sequence[MavenModule], transitive: bool) -> None:
    ivy_file = part / "ivy.xml"
    ivy_file.write_text(_ivy_xml(modules, transitive), encoding="utf-8")
    command = [find_java(), "-jar", str(find_ivy()), "-ivy", str(ivy_file), "-confs", "default"]
    # Without "bundle", modules packaged for OSGi (scala-logging) would be missing.
    command += ["-types", "jar", "bundle"]
    command += ["-retrieve", f"{part}/[artifact]-[revision](-[classifier]).[ext]"]
    settings = os.environ.get(IVY_SETTINGS_VARIABLE)
    if settings:
        command += ["-settings", settings]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_IVY_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise LocalKafkaError(f"Ivy did not finish within {_IVY_TIMEOUT_S} s") from error
    except OSError as error:
        raise LocalKafkaError(f"{command[0]} does not run: {error}") from error
    if done.returncode:
        raise LocalKafkaError(_ivy_failure(done.stdout.decode("utf-8", "replace"), modules))
    ivy_file.unlink()


def _ivy_xml(modules: Sequence[MavenModule], transitive: bool) -> str:
    """The modules as an Ivy file: the command line takes only one, and cannot make each of
    several intransitive.
    """
    flag = quoteattr(str(transitive).lower())
    dependencies = "\n".join(
        f"    <dependency org={quoteattr(module.group)} name={quoteattr(module.artifact)} "
        f'rev={quoteattr(module.version)} conf="default->default" transitive={flag}/>'
        for module in modules
    )
    return (
        '<ivy-module version="2.0">\n'
        '  <info organisation="pykafka-sink" module="jars"/>\n'
        '  <configurations><conf name="default"/></configurations>\n'
        f"  <dependencies>\n{dependencies}\n  </dependencies>\n"
        "</ivy-module>\n"
    )


def _ivy_failure(output: str, modules: Sequence[MavenModule]) -> str:
    wanted = ", ".join(":".join(module) for module in modules)
    lines = [line.rstrip() for line in output.splitlines() if line.strip()]
    tail = "\n".join(f"    {line}" for line in lines[-_IVY_OUTPUT_LINES:])
    return (
        f"Ivy could not fetch {wanted}. Check the versions and the connection to Maven Central; "
        f"where only a mirror can be reached, set {IVY_SETTINGS_VARIABLE} to an ivysettings.xml "
        f"that names it. Ivy said:\n{tail}"
    )


def find_ivy() -> Path:
    """The Ivy jar of the installed pyspark, which is located but not imported.

    Raises LocalKafkaError without pyspark, or with one that has no jars.
    """
    spec = importlib.util.find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        raise LocalKafkaError(
            "pyspark is not installed, and its Ivy is needed to fetch jars: "
            'pip install "pykafka-sink[spark]"'
        )
    folders = [Path(location) / "jars" for location in spec.submodule_search_locations]
    # In a Spark distribution, as against pip's pyspark, the jars are not inside the package.
    folders += [location.parents[2] / "jars" for location in folders if len(location.parents) > 2]
    for folder in folders:
        found = sorted(folder.glob("ivy-*.jar"))
        if found:
            return found[-1]
    raise LocalKafkaError(
        f"pyspark at {folders[0].parent} has no jars/ivy-*.jar, which is needed to fetch jars: "
        'install the full pyspark, pip install "pykafka-sink[spark]"'
    )
