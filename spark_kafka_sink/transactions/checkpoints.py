"""Compare locations of checkpoints in any spelling, and read the query's id from a checkpoint.

Spark gives the sink the text of ``checkpointLocation`` as the user, or Spark Declarative Pipelines,
wrote it: ``file:/c`` and ``file:///c`` are one folder. :func:`qualified` compares as far as is
possible without a JVM. Some names need a file system, and stay unknown: the default scheme and
host, links, and other names of one store (s3 and s3a).

Source: ``org.apache.hadoop.fs.Path``, its constructor and ``makeQualified``.
"""

from __future__ import annotations

import json
import os
import posixpath
import re
import stat
from typing import NamedTuple
from urllib.parse import unquote

_LOCAL = "file"
_DEFAULT_PORTS = {"hdfs": ":8020"}
_MAX_METADATA_BYTES = 64 * 1024


class Location(NamedTuple):
    """A folder.

    scheme: in lower case; None for the default file system
    authority: host and port in lower case, with what is before ``@``; None for the default one
    path: as it is spelled, without empty, ``.`` and ``..`` parts; relative only if the folder of a
        relative path is unknown
    """

    scheme: str | None
    authority: str | None
    path: str

    @property
    def parent(self) -> Location:
        """The folder that has this one."""
        return self._replace(path=posixpath.dirname(self.path))

    def is_same(self, other: Location) -> bool:
        """Return True if both may be one folder: an unknown scheme or host equals any."""
        return (
            _decoded(self.path) == _decoded(other.path)
            and _agree(self.scheme, other.scheme)
            and _agree(self.authority, other.authority)
        )

    def completed_by(self, other: Location) -> Location:
        """Return this location with what only ``other``, the same folder, says."""
        scheme = other.scheme if self.scheme is None else self.scheme
        authority = other.authority if self.authority is None else self.authority
        return Location(scheme, authority, self.path)

    def __str__(self) -> str:
        authority = f"//{self.authority}" if self.authority else ""
        return f"{self.scheme}:{authority}{self.path}" if self.scheme else self.path


def _agree(one: str | None, other: str | None) -> bool:
    return one is None or other is None or one == other


def qualified(text: str, working_folder: str | None = None) -> Location:
    """Return the location that ``text`` names. Never raises.

    working_folder: of this process by default; a relative path is in it if it is local
    """
    scheme, authority, path = _parts(text)
    if scheme == _LOCAL:
        authority = "" if authority in (None, "localhost") else authority
    port = _DEFAULT_PORTS.get(scheme or "", "")
    if port and authority is not None:
        authority = authority.removesuffix(port)
    location = Location(scheme, authority, _normalized(path or "/"))
    if path.startswith("/") or scheme is not None:
        return location
    absolute = _normalized(f"{working_folder or _working_folder()}/{path}")
    local = Location(_LOCAL, "", absolute)
    # Another default file system has a working folder of its own.
    return local if query_id_at(local) is not None else location


def _parts(text: str) -> tuple[str | None, str | None, str]:
    """Return scheme, authority and path as ``Path(String)`` finds them."""
    scheme: str | None = None
    head, colon, rest = text.partition(":")
    if colon and "/" not in head:
        scheme, text = head.lower(), rest
    if not text.startswith("//") or len(text) == len("//"):
        return scheme, None, text
    authority, slash, path = text[2:].partition("/")
    user, at, host = authority.rpartition("@")
    return scheme, f"{user}{at}{host.lower()}" or None, slash + path


def _normalized(path: str) -> str:
    # posixpath keeps two leading slashes.
    return posixpath.normpath(re.sub("/+", "/", path))


def _decoded(path: str) -> str:
    """Decode percent codes: Spark passes a location also as a URI, where a space is ``%20``."""
    try:
        return "/".join(_decoded_part(part) for part in path.split("/"))
    except UnicodeDecodeError:
        return path


def _decoded_part(part: str) -> str:
    found = unquote(part, errors="strict")
    return part if "/" in found or "\0" in found else found


def _working_folder() -> str:
    try:
        return os.getcwd()
    except OSError:  # it was removed
        return ""


def query_id_at(location: Location) -> str | None:
    """Return the id of the query whose checkpoint is at ``location``. Never raises.

    None if the folder is not on this machine, or its file ``metadata`` cannot be read.
    """
    found = (_query_id_in(path) for path in _local_paths(location))
    return next((query_id for query_id in found if query_id is not None), None)


def _local_paths(location: Location) -> list[str]:
    """Return the paths that the folder may have on this machine."""
    is_local = location.scheme in (None, _LOCAL) and not location.authority
    if not is_local or not location.path.startswith("/"):
        return []
    return list(dict.fromkeys((location.path, _decoded(location.path))))


def _query_id_in(folder: str) -> str | None:
    try:
        # A pipe in the file's place must not stop planning.
        descriptor = os.open(f"{folder}/metadata", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return None
            found = json.loads(file.read(_MAX_METADATA_BYTES))["id"]
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return None
    return found if isinstance(found, str) and found else None


def has_commits_at(location: Location) -> bool:
    """Return True if a micro-batch of the checkpoint is known to be finished. Never raises."""
    return any(_has_commits_in(path) for path in _local_paths(location))


def _has_commits_in(folder: str) -> bool:
    try:
        with os.scandir(f"{folder}/commits") as entries:
            return any(entry.name.isdecimal() for entry in entries)
    except (OSError, ValueError):
        return False
