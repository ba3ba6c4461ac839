"""Find Java, and fetch jars from Maven Central with pyspark's Ivy.

Every set of jars has its own folder in the cache folder: ``PYKAFKA_SINK_CACHE``, else
``$XDG_CACHE_HOME/pykafka-sink``, else ``~/.cache/pykafka-sink``. A folder appears under its name
only when it is complete, so a download may be interrupted, or run twice at once.

Jars are code. Jars of another user are not loaded (``base/machine.py``), and Ivy's own caches
in the home directory are not used: Ivy's files are in the folder of the download, under its lock.
Jars named in ``digests/`` must have the digest there. Ivy compares all others with the repository's
checksums while it fetches.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import importlib.util
import logging
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from importlib.resources import files
from pathlib import Path
from typing import BinaryIO, NamedTuple
from xml.sax.saxutils import quoteattr

from spark_kafka_sink.base.errors import warn
from spark_kafka_sink.base.machine import (
    CACHE_VARIABLE,
    CodeFolderError,
    check_code_folder,
    named_folder,
    user_cache_folder,
)
from spark_kafka_sink.localkafka.settings import LocalKafkaError

# --- what is shown while a first run waits ------------------------------------------------------

Step = Callable[[str], AbstractContextManager[object]]
"""Called with a title before each step that downloads, starts or waits for a process.

If the context manager gives an object with ``say``, this gets the text with the progress.
"""
_PROGRESS_S = 5
_MB = 1_000_000


class _Printed:
    """A step whose texts are lines on standard error."""

    def say(self, text: str) -> None:
        """Print the text."""
        print(f"{text} …", file=sys.stderr, flush=True)


@contextmanager
def print_step(title: str) -> Iterator[_Printed]:
    """Print the title on standard error before the block runs, and its progress."""
    step = _Printed()
    step.say(title)
    yield step


@contextmanager
def _growth_shown(step: object, title: str, root: Path) -> Iterator[None]:
    """Show from time to time how much of a download has arrived below ``root``."""
    say: Callable[[str], object] = getattr(step, "say", lambda text: None)
    done = threading.Event()

    def show() -> None:
        while not done.wait(_PROGRESS_S):
            say(f"{title}: {_arrived_bytes(root) / _MB:.0f} MB")

    shows = threading.Thread(target=show, daemon=True)
    shows.start()
    try:
        yield
    finally:
        done.set()
        shows.join()


def _arrived_bytes(root: Path) -> int:
    """Return the size of all files in Ivy's cache, which are renamed and removed meanwhile."""
    size = 0
    for part in root.glob(f"{_PART_PREFIX}*"):
        for folder, _, names in os.walk(part / ".ivy" / "cache"):
            for name in names:
                with suppress(OSError):
                    size += os.path.getsize(os.path.join(folder, name))
    return size


# --- Java: where it is, and whether it is new enough ---------------------------------------------

_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_VERSION_TIMEOUT_S = 30
_ADVICE = "install a Java runtime 17 or newer and put it on the PATH, or set JAVA_HOME"


def find_java() -> str:
    """Return the path of ``java`` in JAVA_HOME, else the PATH. Raises LocalKafkaError if none."""
    home = os.environ.get("JAVA_HOME")
    if home:
        java = Path(home, "bin", "java")
        if not os.access(java, os.X_OK):
            raise _java_problem(f"JAVA_HOME is {home}, but there is no {java}")
        return os.path.abspath(java)
    found = shutil.which("java")
    if found is None:
        raise _java_problem("no java on the PATH, and JAVA_HOME is not set")
    return os.path.abspath(found)


def java_major_version(java: str) -> int:
    """Return 17 for Java 17, 8 for Java 1.8. Raises LocalKafkaError if ``java`` does not run."""
    try:
        status, output = _run([java, "-version"], _VERSION_TIMEOUT_S, "/")
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _java_problem(f"{java} does not run ({error})") from error
    match = _VERSION.search(output)
    if status or match is None:
        raise _java_problem(f"{java} -version says {output.strip()!r}")
    return int(match[1])


def _java_problem(problem: str) -> LocalKafkaError:
    return LocalKafkaError(f"{problem}: {_ADVICE}", code="LOCAL-001")


def _run(command: Sequence[str], timeout_s: int, folder: str | Path) -> tuple[int, str]:
    """Run a program in ``folder``, and return its exit status and all its output."""
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=timeout_s,
        check=False,
        cwd=folder,
    )
    return done.returncode, done.stdout.decode("utf-8", "replace")


def find_java_for_kafka(kafka_version: str) -> str:
    """Return a ``java`` that can run this Kafka. Raises LocalKafkaError if it is missing or old."""
    needed = 17 if int(kafka_version.split(".")[0]) >= 4 else 8
    return find_java_for(f"Kafka {kafka_version}", needed)


def find_java_for(program: str, needed: int) -> str:
    """Return a ``java`` of at least version ``needed``. Raises LocalKafkaError without one."""
    java = find_java()
    found = java_major_version(java)
    if found < needed:
        raise _java_problem(f"{program} needs Java {needed} or newer, {java} is Java {found}")
    return java


# --- jars ----------------------------------------------------------------------------------------

IVY_SETTINGS_VARIABLE = "PYKAFKA_SINK_IVY_SETTINGS"

_MANIFEST = "modules.txt"
_TRANSITIVE = "transitive="
_ARCHIVE = ".tar.gz"
# The repository is Ivy's own default, as for jars.
_WITHOUT_POMS = (
    '<ivysettings><settings defaultResolver="central"/><resolvers>'
    '<ibiblio name="central" m2compatible="true" usepoms="false"/>'
    "</resolvers></ivysettings>\n"
)
# The user chooses the cache folder, so other programs may have files there.
_LOCK = ".pykafka-sink-lock"
_PART_PREFIX = ".pykafka-sink-part-"
_IVY_TIMEOUT_S = 900
_ATTEMPTS = 2
_IVY_OUTPUT_LINES = 40
_IVY_CAUSES = (
    re.compile(r"Server access error[^\n]*|SERVER ERROR[^\n]*", re.IGNORECASE),
    re.compile(r"Host \S+ not found"),
    re.compile(r"(?<=\[FAILED     \] )[^\n]+"),
    re.compile(r"(?<=:: )[\w.-]+#[^\n]+: [^\n]+"),
)
"""Patterns find the cause of a failure in the output of Ivy. The most exact one is first."""
# Ivy's command line takes one module, and cannot make each of several intransitive. Kafka's tools
# depend on Connect, and run without its web server.
_IVY_FILE = """\
<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="pykafka-sink" module="jars"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>{}
    <exclude org="org.apache.kafka" module="connect-runtime"/>
  </dependencies>
</ivy-module>
"""
_DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_READ_BYTES = 1024 * 1024
_MOST_MANIFEST_BYTES = 1024 * 1024
"""A manifest lists modules, in less than 1 kB."""

_LOG = logging.getLogger(__name__)


class _Wanted(NamedTuple):
    """Files that Ivy fetches, with their Maven coordinates, types, and dependencies in XML.

    settings: Ivy's settings, if its own defaults do not serve
    """

    coordinates: Sequence[str]
    files: Sequence[str]
    types: Sequence[str]
    dependencies: str
    settings: str | None = None


def _parse(coordinates: str, parts: int = 3) -> list[str]:
    found = coordinates.split(":")
    if len(found) != parts or not all(found):
        raise LocalKafkaError(f"'{coordinates}' is not group:artifact:version", code="LOCAL-002")
    return found


def _dependency(module: Sequence[str], transitive: bool, inner: str = "") -> str:
    group, artifact, version = map(quoteattr, module)
    return (
        f'<dependency org={group} name={artifact} rev={version} conf="default->default" '
        f"transitive={quoteattr(str(transitive).lower())}>{inner}</dependency>"
    )


def cache_folder() -> Path:
    """Return the folder for fetched jars, which may not exist yet.

    Raises LocalKafkaError if no variable names it and the user has no home directory.
    """
    folder = named_folder(CACHE_VARIABLE) or user_cache_folder()
    if folder is None:
        raise LocalKafkaError(
            f"there is no home directory to keep downloads in: set {CACHE_VARIABLE} to a folder "
            "that can be written",
            code="LOCAL-005",
        )
    return folder


def fetch_jars(
    modules: Sequence[str],
    name: str,
    transitive: bool = True,
    title: str | None = None,
    step: Step = print_step,
) -> list[Path]:
    """Return the jars of Maven ``modules`` (``group:artifact:version``), from cache or network.

    ``name`` is their folder in the cache; jars of other modules in the folder are replaced. If
    ``transitive`` is False, dependencies are omitted. ``title`` describes the jars for ``step``,
    which is called only if there is something to wait for. Needs Java and pyspark.

    Raises LocalKafkaError if something is missing or the download fails.
    """
    parsed = [_parse(coordinates) for coordinates in modules]
    manifest = "".join(f"{line}\n" for line in (f"{_TRANSITIVE}{transitive}", *modules))
    names = [f"{artifact}-{version}.jar" for _, artifact, version in parsed]
    dependencies = "".join(_dependency(module, transitive) for module in parsed)
    # Without "bundle", Ivy omits modules packaged for OSGi (scala-logging).
    wanted = _Wanted(modules, names, ("jar", "bundle"), dependencies)
    folder = _cached(name, manifest, title or ", ".join(modules), step, wanted)
    jars = sorted(folder.glob("*.jar"))
    _check_digests(jars, _digests_of(name))
    return jars


def fetch_archive(coordinates: str, name: str, title: str, step: Step = print_step) -> Path:
    """Return a ``.tar.gz`` beside a module's jar, from cache or network, as ``fetch_jars`` does.

    coordinates: ``group:artifact:version:classifier``

    Ivy reads no POM, because it cannot read that of every program. The package must have the digest
    of the file. Raises LocalKafkaError.
    """
    *module, classifier = _parse(coordinates, 4)
    file_name = f"{module[1]}-{module[2]}-{classifier}{_ARCHIVE}"
    kind = quoteattr(_ARCHIVE[1:])
    artifact = (
        f"<artifact name={quoteattr(module[1])} type={kind} ext={kind} "
        f"m:classifier={quoteattr(classifier)}/>"
    )
    dependency = _dependency(module, False, artifact)
    wanted = _Wanted([coordinates], [file_name], [_ARCHIVE[1:]], dependency, _WITHOUT_POMS)
    path = _cached(name, f"{file_name}\n", title, step, wanted) / file_name
    _check_digests([path], _digests_of(name) or {})
    return path


def _cached(name: str, manifest: str, what: str, step: Step, wanted: _Wanted) -> Path:
    """Return a folder of the cache, after Ivy has filled it if it is missing."""
    root = cache_folder()
    folder = root / name
    if folder.exists():
        _check_folder(folder)
    if not _has_manifest(folder, manifest):
        with _cache_lock(root, what, step):
            if not _has_manifest(folder, manifest):
                title = f"Downloading {what}"
                with step(title) as shown, _growth_shown(shown, title, root), _writing(root):
                    _fill(folder, manifest, what, wanted)
    _check_folder(folder)
    return folder


def cached_folders() -> list[Path]:
    """Return the folders of complete and interrupted downloads. Raises LocalKafkaError.

    Other folders are omitted, and links to folders.
    """
    try:
        found = sorted(path for path in cache_folder().iterdir() if path.is_dir())
    except FileNotFoundError:
        return []
    except OSError as error:
        raise LocalKafkaError(
            f"{error.filename} cannot be read: {error.strerror}", code="LOCAL-005"
        ) from None
    return [path for path in found if not path.is_symlink() and _is_download(path)]


def _is_download(folder: Path) -> bool:
    """Return True if this module has made the folder: other programs have a modules.txt too."""
    if folder.name.startswith(_PART_PREFIX):
        return True
    try:
        first, _, _ = _read_manifest(folder).partition("\n")
        is_archive = first.endswith(_ARCHIVE) and first in os.listdir(folder)
    except (OSError, ValueError):
        return False
    return first.startswith(_TRANSITIVE) or is_archive


def clear_cache(step: Step = print_step) -> None:
    """Remove ``cached_folders``, and the cache folder if nothing else is in it.

    Waits for a download of another process. Raises LocalKafkaError, without removing anything if
    a process holds one of the folders.
    """
    root = cache_folder()
    if not root.exists():
        return
    with _cache_lock(root, "the cache", step), ExitStack() as claims:
        try:
            folders = cached_folders()
            for folder in folders:
                claims.enter_context(_claim(folder))
            for folder in folders:
                shutil.rmtree(folder)
            (root / _LOCK).unlink()
        except OSError as error:
            raise LocalKafkaError(f"{error.filename}: {error.strerror}", code="LOCAL-005") from None
    with suppress(OSError):  # other files are in it; or it is a link, or where a disk is mounted
        root.rmdir()


@contextmanager
def hold(folder: Path) -> Iterator[None]:
    """Keep ``clear_cache`` from removing the folder: a JVM opens most jars after its start."""
    with _open_file(folder / _MANIFEST) as manifest:
        fcntl.flock(manifest, fcntl.LOCK_SH)
        yield


@contextmanager
def _claim(folder: Path) -> Iterator[None]:
    """Raise LocalKafkaError if a process holds the folder."""
    try:
        manifest = _open_file(folder / _MANIFEST, os.O_RDWR)
    except FileNotFoundError:  # an interrupted download
        yield
        return
    with manifest:
        try:
            fcntl.flock(manifest, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LocalKafkaError(
                f"a broker runs from {folder}: nothing is removed. Stop the broker first",
                code="LOCAL-009",
            ) from None
        yield


def _check_folder(folder: Path) -> None:
    try:
        check_code_folder(folder)
    except CodeFolderError as error:
        raise LocalKafkaError(
            f"no jar is loaded from {folder}: {error}. {CACHE_VARIABLE} names the cache folder",
            code="LOCAL-006",
        ) from error


def _digests_of(name: str) -> dict[str, str] | None:
    """Return SHA-256 by jar for a folder of the cache; None if the project ships no digests."""
    try:
        text = (files(__package__) / "digests" / f"{name}.sha256").read_text(encoding="ascii")
    except FileNotFoundError:
        return None
    return {jar: digest for digest, jar in map(str.split, text.splitlines())}


def _check_digests(jars: Sequence[Path], digests: Mapping[str, str] | None) -> None:
    """Raise LocalKafkaError for a jar whose digest differs from the project's digest."""
    for jar in jars if digests is not None else ():
        with _open_file(jar) as file:
            digest = hashlib.sha256()
            while data := file.read(_READ_BYTES):
                digest.update(data)
        if digests is not None and digests.get(jar.name) != digest.hexdigest():
            raise LocalKafkaError(
                f"{jar} is not the jar that this version of the sink knows: its SHA-256 is "
                f"{digest.hexdigest()}, not {digests.get(jar.name, 'that of any')}. Remove "
                f"{jar.parent}; if a new download has the same digest, the repository that Ivy "
                "uses has another file than Maven Central",
                code="LOCAL-008",
            )


def _open_file(path: Path, flags: int = os.O_RDONLY) -> BinaryIO:
    """Open a regular file. Raises OSError for a link, a FIFO or a device, without waiting.

    Others may be able to write to the cache folder.
    """
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    file = os.fdopen(descriptor, "rb" if flags == os.O_RDONLY else "r+b")
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "not a file", str(path))
    return file


def _read_manifest(folder: Path) -> str:
    """Return the text. Raises OSError, and ValueError for what is no manifest."""
    with _open_file(folder / _MANIFEST) as file:
        data = file.read(_MOST_MANIFEST_BYTES + 1)
    if len(data) > _MOST_MANIFEST_BYTES:
        raise ValueError("too long for a manifest")
    return data.decode()


def _has_manifest(folder: Path, manifest: str) -> bool:
    try:
        return _read_manifest(folder) == manifest
    except (OSError, ValueError):
        return False


@contextmanager
def _cache_lock(root: Path, what: str, step: Step) -> Iterator[None]:
    """Hold a lock that admits one process at a time. The lock ends with its process."""
    is_held = False
    while not is_held:
        with _writing(root):
            root.mkdir(0o755, parents=True, exist_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = os.open(root / _LOCK, flags, 0o644)
        with os.fdopen(descriptor, "w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                with step(f"Waiting for {what}: another process downloads into {root}"):
                    fcntl.flock(lock, fcntl.LOCK_EX)
            # The process that held it may have removed the file, and a third one made a new file.
            with suppress(FileNotFoundError):
                is_held = os.path.samestat(os.fstat(lock.fileno()), os.stat(root / _LOCK))
            if is_held:
                yield


@contextmanager
def _writing(root: Path) -> Iterator[None]:
    """Turn an error of the file system into a LocalKafkaError."""
    try:
        yield
    except OSError as error:
        raise LocalKafkaError(
            f"the cache folder {root} cannot be written ({error.strerror}): set {CACHE_VARIABLE} "
            "to a folder that can",
            code="LOCAL-005",
        ) from error


def _fill(folder: Path, manifest: str, what: str, wanted: _Wanted) -> None:
    """Fetch beside ``folder``, then move there. The caller holds the lock."""
    digests = _digests_of(folder.name)
    for stale in folder.parent.glob(f"{_PART_PREFIX}*"):
        shutil.rmtree(stale, ignore_errors=True)  # left by a killed process
    part = Path(tempfile.mkdtemp(prefix=_PART_PREFIX, dir=folder.parent))
    try:
        _check_folder(part)
        if digests is None:
            known = "its jars are as the repository's own checksums say"
            warn(_LOG, "LOCAL-014", f"no digests of {what} are shipped: {known}")
        _run_ivy_with_retry(part, wanted)
        for file_name in wanted.files:
            if not (part / file_name).is_file():
                raise LocalKafkaError(f"Ivy fetched no {file_name}", code="LOCAL-004")
        fetched = sorted(path for path in part.iterdir() if path.is_file())
        for path in fetched:
            path.chmod(0o644)  # whatever the umask is
        _check_digests(fetched, digests)
        (part / _MANIFEST).write_text(manifest, encoding="utf-8")
        part.chmod(0o755)  # mkdtemp makes it private; a shared cache must be readable
        # A process that reads jars from the folder right now keeps its open files.
        shutil.rmtree(folder, ignore_errors=True)
        part.rename(folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _run_ivy_with_retry(part: Path, wanted: _Wanted) -> None:
    """Fetch; after a failure, such as a connection that broke, fetch once more from nothing."""
    for attempts_left in reversed(range(_ATTEMPTS)):
        try:
            return _run_ivy(part, wanted)
        except LocalKafkaError as error:
            if not attempts_left:
                raise
            warn(_LOG, error.code, f"{error}. Ivy is run once more")
            shutil.rmtree(part / ".ivy", ignore_errors=True)


def _run_ivy(part: Path, wanted: _Wanted) -> None:
    """Fetch into ``part``. Raises LocalKafkaError, and OSError if its disk is full."""
    ivy_file = part / "ivy.xml"
    ivy_file.write_text(_IVY_FILE.format(wanted.dependencies), encoding="utf-8")
    # Do not use the caches in the home directory, because Ivy trusts their contents.
    own = part / ".ivy"
    command = [find_java(), f"-Divy.default.ivy.user.dir={own}", "-jar", str(find_ivy())]
    command += ["-cache", str(own / "cache"), "-ivy", str(ivy_file), "-confs", "default"]
    command += ["-types", *wanted.types]
    command += ["-retrieve", f"{part}/[artifact]-[revision](-[classifier]).[ext]"]
    settings = os.environ.get(IVY_SETTINGS_VARIABLE)
    if settings:
        command += ["-settings", os.path.abspath(settings)]
    elif wanted.settings is not None:
        own.mkdir(exist_ok=True)
        (own / "settings.xml").write_text(wanted.settings, encoding="utf-8")
        command += ["-settings", str(own / "settings.xml")]
    try:
        status, output = _run(command, _IVY_TIMEOUT_S, part)
    except subprocess.TimeoutExpired as error:
        raise LocalKafkaError(
            f"Ivy did not finish within {_IVY_TIMEOUT_S} s", code="LOCAL-004"
        ) from error
    except OSError as error:
        raise LocalKafkaError(f"{command[0]} does not run: {error}", code="LOCAL-001") from error
    if status:
        for number in _DISK_FULL:
            if os.strerror(number) in output:
                raise OSError(number, os.strerror(number))
        raise LocalKafkaError(_ivy_failure(output, wanted), code="LOCAL-004")
    ivy_file.unlink()
    shutil.rmtree(own, ignore_errors=True)


def _ivy_failure(output: str, wanted: _Wanted) -> str:
    what = ", ".join(wanted.coordinates)
    advice = (
        "Check the versions and the connection to Maven Central; where only a mirror can be "
        f"reached, set {IVY_SETTINGS_VARIABLE} to an ivysettings.xml that names it"
    )
    for cause in _IVY_CAUSES:
        found = cause.search(output)
        if found is not None:
            return f"Ivy could not fetch {what}: {found[0].strip()}. {advice}"
    lines = [line.rstrip() for line in output.splitlines() if line.strip()]
    tail = "\n".join(f"    {line}" for line in lines[-_IVY_OUTPUT_LINES:])
    return f"Ivy could not fetch {what}. {advice}. Ivy said:\n{tail}"


def find_ivy() -> Path:
    """Return the Ivy jar of the installed pyspark, without importing pyspark.

    Raises LocalKafkaError if pyspark is missing or has no jars.
    """
    spec = importlib.util.find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        raise LocalKafkaError(
            "pyspark is not installed, and its Ivy is needed to fetch jars: "
            'pip install "pykafka-sink[spark]"',
            code="LOCAL-003",
        )
    folders = [Path(location) / "jars" for location in spec.submodule_search_locations]
    # A Spark distribution, unlike pip's pyspark, keeps the jars outside the package.
    folders += [location.parents[2] / "jars" for location in folders if len(location.parents) > 2]
    for folder in folders:
        found = sorted(folder.glob("ivy-*.jar"))
        if found:
            return found[-1]
    raise LocalKafkaError(
        f"pyspark at {folders[0].parent} has no jars/ivy-*.jar, which is needed to fetch jars: "
        'install the full pyspark, pip install "pykafka-sink[spark]"',
        code="LOCAL-003",
    )
