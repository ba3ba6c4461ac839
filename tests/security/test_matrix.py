"""Every case on real brokers by our producer; what was written is read back by another client."""

import pytest

from tests.security.cases import CASES
from tests.security.writing import VALUES, values_in, write

# In `make evidence NAME=security`: a store read well is so at each listener, and brokers take their time to tell each
# other of a delegation token.
_LONG = ("token-", "at-MUTUAL_EC", "at-MUTUAL_12")


def _marked(case):
    is_long = case.startswith(_LONG[0]) or case.endswith(_LONG[1:])
    return pytest.param(case, marks=[pytest.mark.long] if is_long else [])


@pytest.mark.parametrize("case", [_marked(case) for case in CASES])
def test_written_and_read_back(world, new_topic, case):
    topic = new_topic()
    write(CASES[case](world), topic)
    assert values_in(world.kafka, topic) == sorted(VALUES)
