"""A Kerberos KDC of the test's own, from MIT's programs (Debian: krb5-kdc, krb5-admin-server)."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

REALM = "TEST.LOCAL"
HOST = "127.0.0.1"
# The programs of administrators are not in everybody's PATH.
_FOLDERS = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
_NEEDED = ("kdb5_util", "kadmin.local", "krb5kdc", "kinit")


def missing_programs() -> list[str]:
    return [name for name in _NEEDED if shutil.which(name, path=_FOLDERS) is None]


class Kdc:
    """A realm in ``folder``. Clients need ``environment`` in theirs."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        with socket.create_server((HOST, 0)) as server:
            self._port = server.getsockname()[1]
        self.krb5_conf = folder / "krb5.conf"
        self.krb5_conf.write_text(
            "[libdefaults]\n"
            f"  default_realm = {REALM}\n"
            "  dns_lookup_kdc = false\n"
            "  dns_canonicalize_hostname = false\n"
            "  rdns = false\n"
            "  udp_preference_limit = 1\n"
            f"[realms]\n  {REALM} = {{\n    kdc = {HOST}:{self._port}\n  }}\n"
        )
        (folder / "kdc.conf").write_text(
            f"[kdcdefaults]\n  kdc_listen = {HOST}:{self._port}\n"
            f"  kdc_tcp_listen = {HOST}:{self._port}\n"
            f"[realms]\n  {REALM} = {{\n"
            f"    database_name = {folder}/principal\n    key_stash_file = {folder}/stash\n  }}\n"
        )
        self._run("kdb5_util", "create", "-s", "-r", REALM, "-P", "master")

    @property
    def environment(self) -> dict[str, str]:
        return {
            "KRB5_CONFIG": str(self.krb5_conf),
            "KRB5_KDC_PROFILE": str(self._folder / "kdc.conf"),
        }

    def keytab(self, principal: str, name: str = "") -> Path:
        """A file with a new key of ``principal``, which is made if need be."""
        path = self._folder / f"{name or principal.replace('/', '-')}.keytab"
        self._kadmin(f"addprinc -randkey {principal}@{REALM}", may_exist=True)
        self._kadmin(f"ktadd -k {path} {principal}@{REALM}")
        return path

    def delete(self, principal: str) -> None:
        self._kadmin(f"delprinc -force {principal}@{REALM}")

    def ticket_cache(self, principal: str, keytab: Path, life: str = "1h") -> Path:
        """A file with a ticket, as ``kinit`` leaves it."""
        path = self._folder / f"{principal}-{life}.cache"
        self._run("kinit", "-l", life, "-c", str(path), "-k", "-t", str(keytab), principal)
        return path

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        program = shutil.which("krb5kdc", path=_FOLDERS)
        assert program is not None
        with subprocess.Popen(
            [program, "-n"],
            env={**os.environ, **self.environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process:
            try:
                assert process.stdout is not None
                # Told when it listens.
                assert any("starting" in line for line in process.stdout)
                yield
            finally:
                process.terminate()

    def _kadmin(self, query: str, may_exist: bool = False) -> None:
        done = self._run("kadmin.local", "-q", query)
        failed = "while" in done.stderr and not (may_exist and "already exists" in done.stderr)
        assert not failed, done.stderr

    def _run(self, name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        program = shutil.which(name, path=_FOLDERS)
        assert program is not None
        return subprocess.run(
            [program, *arguments],
            env={**os.environ, **self.environment},
            capture_output=True,
            text=True,
            check=True,
        )
