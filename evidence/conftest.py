"""What holds for tests holds for evidence, too, and all of it is long."""

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


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """So that ``-m long`` takes it together with the long tests of tests/."""
    for item in items:
        if _HERE in item.path.parents:
            item.add_marker(pytest.mark.long)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(LONG_S))
