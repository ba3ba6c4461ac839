import shutil
from contextlib import ExitStack

import pytest

from evidence.kfake.writing import KfakeCluster, build

WHERE_GO_INSTALLS_ITSELF = "/usr/local/go/bin"


@pytest.fixture(scope="session")
def program(tmp_path_factory):
    go = shutil.which("go") or shutil.which("go", path=WHERE_GO_INSTALLS_ITSELF)
    if go is None:
        pytest.fail("kfake is written in Go: put Go 1.21 or newer on the PATH (https://go.dev/dl)")
    return build(go, tmp_path_factory.mktemp("kfake"))


@pytest.fixture
def new_cluster(program):
    """Clusters, for the length of a test."""
    with ExitStack() as stack:

        def start(**options):
            return stack.enter_context(KfakeCluster(program, **options))

        yield start


@pytest.fixture
def cluster(new_cluster):
    """Three brokers of the newest kind."""
    return new_cluster(brokers=3)
