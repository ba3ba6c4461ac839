"""What docs/upstream/ tells Spark's developers is so, with the Spark that is installed."""

import os
import re
import subprocess
import sys

import pytest

from tests.snippets import blocks

ISSUE = "docs/upstream/spark-continuous-trigger.md"
# Instead of some seconds: until the first epoch is committed, or the query has ended.
FIRST_COMMIT = (
    "query.awaitTermination(15)",
    "next(n for n in range(10**6) if query.awaitTermination(1) or os.path.exists(folder + '/commits/0'))",
)


def run_reproduction(folder, *changes):
    [block] = blocks(ISSUE, "python")
    code = block.text
    for old, new in changes:
        assert old in code
        code = code.replace(old, new)
    script = folder / "reproduction.py"
    script.write_text(code, encoding="utf-8")
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    return subprocess.run(
        [sys.executable, str(script)], env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.long
def test_a_continuous_trigger_commits_rows_that_no_python_sink_was_given(tmp_path):
    done = run_reproduction(tmp_path, FIRST_COMMIT)
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"ended: \d+ exception: None\ncommitted: \[0.*\]\n", done.stdout)
    assert "rows were handed over" not in done.stderr


@pytest.mark.long
def test_without_the_trigger_the_rows_are_handed_over(tmp_path):
    no_trigger = ('.trigger(continuous="1 second")', "")
    done = run_reproduction(tmp_path, no_trigger, ("(15)", "()"))
    assert done.returncode != 0
    assert "rows were handed over" in done.stderr
