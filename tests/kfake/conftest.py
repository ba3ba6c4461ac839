from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.kfake.cluster import KfakeCluster, build

WHERE_GO_INSTALLS_ITSELF = "/usr/local/go/bin"


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    go = shutil.which("go") or shutil.which("go", path=WHERE_GO_INSTALLS_ITSELF)
    if go is None:
        pytest.fail("kfake is written in Go: put Go 1.21 or newer on the PATH (https://go.dev/dl)")
    return build(go, tmp_path_factory.mktemp("kfake"))


@pytest.fixture
def new_cluster(program: Path) -> Iterator[Callable[..., KfakeCluster]]:
    """Clusters, for the length of a test."""
    with ExitStack() as stack:

        def start(**options: object) -> KfakeCluster:
            return stack.enter_context(KfakeCluster(program, **options))  # type: ignore[arg-type]

        yield start


@pytest.fixture
def cluster(new_cluster: Callable[..., KfakeCluster]) -> KfakeCluster:
    """Three brokers of the newest kind."""
    return new_cluster(brokers=3)
