"""A Kerberos KDC of the test's own, from MIT's programs (Debian: krb5-kdc, krb5-admin-server)."""

import contextlib
import os
import shutil
import socket
import subprocess
from pathlib import Path

REALM = "TEST.LOCAL"
HOST = "127.0.0.1"
# The programs of administrators are not in everybody's PATH.
_FOLDERS = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
_NEEDED = ("kdb5_util", "kadmin.local", "krb5kdc", "kinit", "gcc")
_SHIFTED_CLOCK = Path(__file__).parents[1] / "shifted_clock.c"


def missing_programs():
    return [name for name in _NEEDED if shutil.which(name, path=_FOLDERS) is None]


class Kdc:
    """A realm in ``folder``. Clients need ``environment`` in theirs."""

    def __init__(self, folder):
        self._folder = folder
        self.environment = self._configure("")
        self.krb5_conf = Path(self.environment["KRB5_CONFIG"])
        self._run("kdb5_util", "create", "-s", "-r", REALM, "-P", "master")

    def _configure(self, name, *more):
        """Files for a KDC at a port of its own, and for its clients. ``more``: of [libdefaults]."""
        with socket.create_server((HOST, 0)) as server:
            address = f"{HOST}:{server.getsockname()[1]}"
        krb5_conf, kdc_conf = self._folder / f"krb5{name}.conf", self._folder / f"kdc{name}.conf"
        lines = (
            f"default_realm = {REALM}",
            "dns_lookup_kdc = false",
            "dns_canonicalize_hostname = false",
            "rdns = false",
            "udp_preference_limit = 1",
            *more,
        )
        krb5_conf.write_text(
            "\n  ".join(("[libdefaults]", *lines))
            + f"\n[realms]\n  {REALM} = {{\n    kdc = {address}\n  }}\n"
        )
        kdc_conf.write_text(
            f"[kdcdefaults]\n  kdc_listen = {address}\n  kdc_tcp_listen = {address}\n"
            f"[realms]\n  {REALM} = {{\n    database_name = {self._folder}/principal\n"
            f"    key_stash_file = {self._folder}/stash\n  }}\n"
        )
        return {"KRB5_CONFIG": str(krb5_conf), "KRB5_KDC_PROFILE": str(kdc_conf)}

    def keytab(self, principal, name=""):
        """A file with a new key of ``principal``, which is made if need be."""
        path = self._folder / f"{name or principal.replace('/', '-')}.keytab"
        self._kadmin(f"addprinc -randkey {principal}@{REALM}", may_exist=True)
        self._kadmin(f"ktadd -k {path} {principal}@{REALM}")
        return path

    def delete(self, principal):
        self._kadmin(f"delprinc -force {principal}@{REALM}")

    def ticket_cache(self, principal, keytab, life="1h"):
        """A file with a ticket, as ``kinit`` leaves it."""
        path = self._folder / f"{principal}-{life}.cache"
        self._run("kinit", "-l", life, "-c", str(path), "-k", "-t", str(keytab), principal)
        return path

    @contextlib.contextmanager
    def running(self):
        with self._serving(self.environment):
            yield

    @contextlib.contextmanager
    def another(self, ahead_s, *settings):
        """A KDC of the same realm, whose clock differs. What its clients have in their environment.

        settings: lines of their krb5.conf.
        """
        library = self._folder / "shifted_clock.so"
        self._run("gcc", "-shared", "-fPIC", "-o", str(library), str(_SHIFTED_CLOCK))
        environment = self._configure(f"-{ahead_s}-{len(settings)}", *settings)
        clock = {"LD_PRELOAD": str(library), "CLOCK_SHIFT_S": str(ahead_s)}
        with self._serving({**environment, **clock}):
            yield environment

    @contextlib.contextmanager
    def _serving(self, environment):
        program = shutil.which("krb5kdc", path=_FOLDERS)
        assert program is not None
        with subprocess.Popen(
            [program, "-n"],
            env={**os.environ, **environment},
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

    def _kadmin(self, query, may_exist=False):
        done = self._run("kadmin.local", "-q", query)
        failed = "while" in done.stderr and not (may_exist and "already exists" in done.stderr)
        assert not failed, done.stderr

    def _run(self, name, *arguments):
        program = shutil.which(name, path=_FOLDERS)
        assert program is not None
        return subprocess.run(
            [program, *arguments],
            env={**os.environ, **self.environment},
            capture_output=True,
            text=True,
            check=True,
        )
