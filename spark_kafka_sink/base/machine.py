"""This machine: folders that only this user can write, processes, limits, environment variables.

Any user may create folders where temporary files are. So a folder's name proves nothing, and
another user's folder of the same name must not block this user. Only this user and root may write
where code is loaded from. The system reuses process ids, so the start of a process counts too.
"""

from __future__ import annotations

import errno
import logging
import os
import resource
import stat
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from spark_kafka_sink.base.errors import KafkaSinkError, coded, warn

if TYPE_CHECKING:
    from subprocess import Popen

logger = logging.getLogger(__name__)

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


EXHAUSTED = "CONNECT-011"
_SHORTAGES = {
    errno.EMFILE: "this process has opened as many files and connections as it may: {limit}. Raise "
    "the limit (ulimit -n, or LimitNOFILE of the service that starts executors)",
    errno.ENFILE: "this machine has opened as many files as it may: raise fs.file-max",
    errno.ENOBUFS: "this machine has no memory left for connections",
    errno.ENOMEM: "this machine has no memory left for connections",
}


def explained(error: OSError) -> str:
    """Return the reason of an error of the operating system.

    If this machine lacks something, and not the peer, the reason has the code ``EXHAUSTED`` and
    what to do.
    """
    reason = error.strerror or str(error) or type(error).__name__
    shortage = _SHORTAGES.get(error.errno or 0)
    if shortage is None:
        return reason
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return coded(f"{reason}: {shortage.format(limit=f'ulimit -n is {limit}')}", EXHAUSTED)


def find_shortage(error: OSError) -> OSError:
    """Return the lack of descriptors that ``error`` hides; else ``error``.

    A look-up of a name fails as if the name server did not answer if it cannot open a socket.
    """
    try:
        os.close(os.dup(0))
    except OSError as shortage:
        if shortage.errno in (errno.EMFILE, errno.ENFILE):
            return shortage
    return error


class PrivateFolderError(KafkaSinkError):
    """The folder cannot be created, or others may replace its content."""

    code = "REGISTRY-019"


def private_folder(purpose: str) -> Path:
    """Return this user's folder for ``purpose``, among the temporary files.

    All of this user's processes take the first own folder with the prefix. If there is none, one is
    created with an unpredictable name. Raises PrivateFolderError.
    """
    parent = Path(os.path.realpath(tempfile.gettempdir()))
    prefix = f"pykafka-sink-{purpose}-{os.geteuid()}-"
    try:
        check_parents(parent)
        path = _first_own(parent, prefix)
        if path is None:
            tempfile.mkdtemp(prefix=prefix, dir=parent)
            # If two processes create one at the same time, both take the first.
            path = _first_own(parent, prefix)
    except OSError as error:
        raise PrivateFolderError(f"{parent}/{prefix}…: {error.strerror}") from error
    if path is None:
        raise PrivateFolderError(f"{parent}/{prefix}… is gone as soon as it is made")
    return path


# Spark's own folder of a driver. A user's value of SPARK_LOCAL_DIRS may outlive the driver.
_BLOCK_MANAGER = "blockmgr-"


def folder_of_spark(purpose: str) -> Path | None:
    """Return a folder in the local folder of Spark's driver, which Spark removes at its end.

    Return None without such a folder, or if other users may replace its content.
    """
    local = Path(os.environ.get("SPARK_LOCAL_DIRS", "").partition(",")[0])
    if not local.name.startswith(_BLOCK_MANAGER):
        return None
    folder = local / f"pykafka-sink-{purpose}"
    try:
        check_parents(local)
        folder.mkdir(mode=0o700, exist_ok=True)
        check_parents(folder)
    except (OSError, PrivateFolderError):
        return None
    return folder


def private_folders() -> list[Path]:
    """Return this user's existing private folders of all purposes."""
    parent = Path(os.path.realpath(tempfile.gettempdir()))
    found = sorted(parent.glob(f"pykafka-sink-*-{os.geteuid()}-*"))
    return [path for path in found if path.is_dir() and path.lstat().st_uid == os.geteuid()]


# Without O_NONBLOCK, opening a FIFO waits for a writer.
_OWNED_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def read_owned_file(path: Path) -> bytes:
    """Return the content of this user's own file. Raises OSError for any other file."""
    with open(os.open(path, _OWNED_FILE), "rb") as file:
        if os.fstat(file.fileno()).st_uid != os.geteuid():
            raise PermissionError(f"{path} is another user's")
        return file.read()


class FileState(NamedTuple):
    """The state of a file; another one means that the file has changed.

    modified_ns: since 1970
    """

    modified_ns: int
    size_bytes: int
    inode: int


def file_state(path: str | Path) -> FileState:
    """Return the state of the file that ``path`` leads to. Raises OSError."""
    found = os.stat(path)
    return FileState(found.st_mtime_ns, found.st_size, found.st_ino)


def write_private(path: Path, content: str | bytes) -> Path:
    """Write a file that only this user may read, in one step: a reader finds it whole."""
    data = content.encode() if isinstance(content, str) else content
    # The name is unforeseeable: in a shared folder, another user may have planted a link.
    descriptor, part = tempfile.mkstemp(prefix=f"{path.name}.", suffix=".part", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        os.replace(part, path)
    except BaseException:
        os.unlink(part)
        raise
    return path


def check_parents(path: Path) -> None:
    """Raise PrivateFolderError if others may replace ``path`` or a folder above it.

    Each level must belong to this user or root, and others must not write there unless it is
    sticky.
    """
    for level in (path, *path.parents):
        found = level.stat()
        is_open = found.st_mode & _OTHERS_WRITE and not found.st_mode & stat.S_ISVTX
        if is_open or found.st_uid not in (0, os.geteuid()):
            raise PrivateFolderError(
                f"other users may replace what is in {level}: set TMPDIR of the driver to a folder "
                "of its own"
            )


def _first_own(parent: Path, prefix: str) -> Path | None:
    for path in sorted(path for path in parent.iterdir() if path.name.startswith(prefix)):
        found = path.lstat()
        if stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid():
            if found.st_mode & _OTHERS:
                text = f"{path} could be read or written by others, and no longer is"
                warn(logger, "LOCAL-007", text)
                path.chmod(stat.S_IRWXU)
            return path
    return None


_MOST_LINKS = 40


class CodeFolderError(KafkaSinkError):
    """Another user could have placed code in the folder."""

    code = "LOCAL-006"


def check_code_folder(path: Path) -> None:
    """Reject a folder in which another user could place or replace a file.

    path: absolute, of an existing folder

    Each level of the path, and each file in the folder, must belong to this user or root, and must
    not be writable by group or others. Above the folder, a sticky level such as /tmp is safe,
    because others cannot replace its content. Too open permissions of this user's own files are
    tightened, with a warning in the log.

    Raises CodeFolderError.
    """
    try:
        folder = _descend(path)
        for file in folder.iterdir():
            _check(file, file.lstat(), is_parent=False)
    except OSError as error:
        raise CodeFolderError(f"{path} cannot be looked at: {error}") from error


def _descend(path: Path) -> Path:
    """Check every level on the way to ``path``, including links, and return its real location."""
    at, rest, links = Path(path.anchor), list(path.parts[1:]), 0
    _check(at, at.lstat(), is_parent=bool(rest))
    while rest:
        part = rest.pop(0)
        if part == "..":
            at = at.parent
            continue
        step = at / part
        found = step.lstat()
        if not stat.S_ISLNK(found.st_mode):
            _check(step, found, is_parent=bool(rest))
            at = step
            continue
        _check_owner(step, found)
        target, links = Path(os.readlink(step)), links + 1
        if links > _MOST_LINKS:
            raise CodeFolderError(f"{path} leads through more than {_MOST_LINKS} links")
        at = Path(target.anchor) if target.is_absolute() else at
        rest = [*target.parts[target.is_absolute() :], *rest]
    return at


def _check_owner(path: Path, found: os.stat_result) -> None:
    if found.st_uid not in (0, os.geteuid()):
        raise CodeFolderError(
            f"{path} belongs to another user (id {found.st_uid}), who could place code there that "
            "this user would run. Remove it, or name another folder"
        )


def _check(path: Path, found: os.stat_result, is_parent: bool) -> None:
    _check_owner(path, found)
    if stat.S_ISLNK(found.st_mode):
        raise CodeFolderError(f"{path} is a link, not a file: remove it")
    is_sticky = bool(found.st_mode & stat.S_ISVTX)
    if not found.st_mode & _OTHERS_WRITE or (is_parent and is_sticky):
        return
    if found.st_uid != os.geteuid():
        raise CodeFolderError(
            f"{path} belongs to root, and others may write to it: they could place code there that "
            f"this user would run. Have it changed (chmod go-w {path}), or name another folder"
        )
    mode = stat.S_IMODE(found.st_mode)
    # Others may still use a folder above, but no longer replace files of other users.
    mode = mode | stat.S_ISVTX if is_parent else mode & ~_OTHERS_WRITE
    path.chmod(mode)
    text = f"{path} was open to other users, and code is loaded from there: now {mode:04o}"
    warn(logger, "LOCAL-007", text)


_PROC = Path("/proc")
# Fields of /proc/PID/stat after the name, which may contain spaces: proc(5) counts from 3.
_STATE, _START_TIME = 0, 19


def process_identity(process_id: int) -> str | None:
    """Return a name unique to this process on this machine since its boot; None if it has ended.

    Without /proc, return the id alone.
    """
    try:
        stat = (_PROC / str(process_id) / "stat").read_bytes()
    except OSError:
        return None if (_PROC / "self" / "stat").exists() else _identity_without_proc(process_id)
    fields = stat.rpartition(b")")[2].split()
    return None if fields[_STATE] in b"ZX" else f"{process_id}-{fields[_START_TIME].decode()}"


def _identity_without_proc(process_id: int) -> str | None:
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        pass  # the process exists and is another user's
    return str(process_id)


# Spark's daemons accept who sends it. Cloud credentials stay: logins may read them.
_SECRET_OF_SPARK = "PYTHON_WORKER_FACTORY_SECRET"


def start_process(module: str, *arguments: str, **streams: Any) -> Popen[bytes]:
    """Start ``main()`` of a module of the package in a process that outlives this one.

    It looks for modules where this process does, and has its working folder, because options may
    name files relative to it. Its environment lacks the secret of Spark.
    streams: stdin, stdout and stderr as for Popen

    Raises OSError.
    """
    from subprocess import Popen  # tasks do not need it

    # Python would search the working folder first, where others may be able to write.
    program = f"import sys; sys.path[:] = filter(None, sys.path); from {module} import main; main()"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    environment.pop(_SECRET_OF_SPARK, None)
    return Popen(
        [sys.executable, "-c", program, *arguments],
        env=environment,
        start_new_session=True,  # Spark ends its Python processes by their group
        **streams,
    )


CACHE_VARIABLE = "PYKAFKA_SINK_CACHE"
"""Names the cache shared between processes: the jars of tests' brokers."""


def named_folder(variable: str) -> Path | None:
    """Return the folder that an environment variable names; None if it is not set."""
    value = os.environ.get(variable)
    if not value:
        return None
    # Not Path.expanduser, which raises without a home directory.
    return Path(os.path.expanduser(value)).absolute()


def user_cache_folder() -> Path | None:
    """Return ``$XDG_CACHE_HOME/pykafka-sink`` or ``~/.cache/pykafka-sink``; None without a home."""
    base = os.path.expanduser(os.environ.get("XDG_CACHE_HOME") or "~/.cache")
    return Path(base) / "pykafka-sink" if os.path.isabs(base) else None


def child_environment() -> dict[str, str]:
    """Return an environment in which a new Python finds this package, wherever it is."""
    root = str(Path(__file__).absolute().parents[2])
    inherited = os.environ.get("PYTHONPATH")
    path = root if not inherited else os.pathsep.join((root, inherited))
    return {**os.environ, "PYTHONPATH": path}
