"""The committed cases: of which client they are, that the generator writes them, what they cover."""

import json

import pytest

from tests.golden import case_files as cases
from tests.golden.case_files import REQUESTS
from tests.golden.generate import find_javac, generate
from tests.tables import each_row

NAMES = sorted(path.stem for path in cases.FOLDER.glob("*.json"))
MOST_BYTES = 1_150_000


@each_row("name", NAMES)
def test_file_states_the_client_that_wrote_it(name):
    assert cases.load_file(name)["client"] == f"kafka-clients {cases.CLIENT_VERSION}"


@each_row("name", [name for name in NAMES if name != "keys"])
def test_names_of_cases_are_unique(name):
    names = [case["name"] for case in cases.load(name)]
    assert len(set(names)) == len(names)


def test_files_are_small():
    assert sum(path.stat().st_size for path in cases.FOLDER.glob("*.json")) < MOST_BYTES


@each_row("name", REQUESTS)
def test_our_table_of_versions_agrees_with_the_clients(name):
    java = cases.load_file("requests")["apis"][name]
    request = REQUESTS[name]
    for message in (request, request.response_type):
        assert message.api_key == java["api_key"]
        assert message.flexible_from == java["flexible_from"]
        assert java["oldest"] <= message.min_version <= message.max_version <= java["latest"]


@pytest.mark.slow
@pytest.mark.long
def test_generator_writes_the_committed_files(tmp_path):
    if find_javac() is None:
        pytest.skip("no JDK 17: the generator needs its javac")
    generate(tmp_path)
    assert sorted(path.stem for path in tmp_path.glob("*.json")) == NAMES
    for name in NAMES:
        written = (tmp_path / f"{name}.json").read_text(encoding="utf-8")
        committed = (cases.FOLDER / f"{name}.json").read_text(encoding="utf-8")
        if name == "codecs":
            # Compressed bytes depend on the machine's libraries, the cases do not.
            assert [c["name"] for c in cases.load(name)] == case_names(written)
        else:
            assert written == committed, f"{name}.json: run python -m tests.golden.generate"


def case_names(text):
    return [case["name"] for case in json.loads(text)["cases"]]
