"""What holds for tests holds for evidence, too; only that it may take longer."""

from pathlib import Path

import pytest

from tests.conftest import (  # noqa: F401 (hooks and fixtures)
    LONG_S,
    kafka,
    lines_as_the_schema_says,
    pytest_make_collect_report,
    pytest_runtest_makereport,
    strict_kafka,
    wheel,
)

_HERE = Path(__file__).parent


def pytest_collection_modifyitems(items):
    for item in items:
        if _HERE in item.path.parents and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(LONG_S))
