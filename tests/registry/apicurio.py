"""A real schema registry: Apicurio, which answers as Confluent's does, with its store in memory.

From Maven Central, kept where LocalKafka keeps its jars.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from spark_kafka_sink.localkafka.cluster import free_ports
from spark_kafka_sink.localkafka.jars import cache_folder, find_java
from tests.patience import PATIENCE_S

# 3.3 wants Java 21.
VERSION = "3.0.9"
_NAME = f"apicurio-registry-app-{VERSION}"
_ADDRESS = (
    f"https://repo1.maven.org/maven2/io/apicurio/apicurio-registry-app/{VERSION}/{_NAME}-all.tar.gz"
)
_JSON = "application/vnd.schemaregistry.v1+json"


class Apicurio:
    """url: for ``schema.registry.url``"""

    def __init__(self, url: str, process: subprocess.Popen[bytes]) -> None:
        self.url = url
        self._process = process

    def stop(self) -> None:
        """As if its machine had died."""
        self._process.kill()
        self._process.wait()

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Of this test's own, without the code under test. Raises HTTPError."""
        data = None if body is None else json.dumps(body).encode()
        request = Request(self.url + path, data, {"Content-Type": _JSON}, method=method)
        with urlopen(request, timeout=60) as answer:
            return json.load(answer)

    def keep_compatible(self, subject: str, rule: str = "BACKWARD") -> None:
        """Apicurio's own default is NONE."""
        self.ask("PUT", f"/config/{subject}", {"compatibility": rule})


def _folder() -> Path:
    """With the jar and its libraries, downloaded once."""
    folder: Path = cache_folder() / _NAME
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        part = Path(tempfile.mkdtemp(prefix=".registry-", dir=folder.parent))
        with (
            urlopen(_ADDRESS, timeout=600) as answer,
            tarfile.open(fileobj=answer, mode="r|gz") as t,
        ):
            t.extractall(part)
        part.rename(folder)
    return folder


@contextmanager
def running_apicurio() -> Iterator[Apicurio]:
    (port,) = free_ports(1, "127.0.0.1")
    work = Path(tempfile.mkdtemp(prefix="apicurio-"))
    command = [find_java(), "-Xmx512m", "-Dquarkus.http.host=127.0.0.1"]
    command += [f"-Dquarkus.http.port={port}", "-jar", str(_folder() / f"{_NAME}-runner.jar")]
    with (work / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=work, stdout=log, stderr=subprocess.STDOUT)
    try:
        registry = Apicurio(f"http://127.0.0.1:{port}/apis/ccompat/v7", process)
        end_s = time.monotonic() + PATIENCE_S
        while True:
            try:
                registry.ask("GET", "/subjects")
                break
            except (HTTPError, URLError, OSError):
                if process.poll() is not None or time.monotonic() > end_s:
                    raise RuntimeError((work / "log").read_text()[-3000:]) from None
                time.sleep(0.5)
        yield registry
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(work, ignore_errors=True)
