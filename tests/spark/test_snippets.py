"""Every Python block of README.md and docs/ and the notebook, run as they stand.

Only addresses, folders and names that must be a reader's own are replaced.
"""

import re

import nbclient
import nbformat
import pytest

from tests.reading import read_topic
from tests.snippets import REPOSITORY, blocks, documents
from tests.spark.fresh_python import FreshPython

# Some start Kafka and Spark of their own, and compile: on a busy machine that takes minutes.
pytestmark = pytest.mark.timeout(1800)

# Its blocks build on each other, and run as one program.
TUTORIAL = "docs/getting-started.md"
# tests/spark/test_cookbook.py
COOKBOOK = "docs/cookbook.md"
SNIPPETS = [
    block
    for document in documents()
    for block in blocks(document, "python")
    if not block.is_for_connect and document not in (TUTORIAL, COOKBOOK)
]
QUICKSTART, SNIPPETS_IN_A_SESSION = SNIPPETS[0], SNIPPETS[1:]
EVENTS = 20
ONE_BROKER = {"transaction.log.replication.factor": "1"}


class Options(dict[str, str]):
    """What lines of ``.option(…)`` say, without the reader's own code, which is tested apart."""

    def option(self, name, value):
        if ":" not in value:
            self[name] = value
        return self


@pytest.fixture
def events(spark, tmp_path):
    """A stream of rows that each have a user."""
    folder = str(tmp_path / "input")
    rows = spark.range(EVENTS).selectExpr("CAST(id % 3 AS STRING) AS user_id", "id AS clicks")
    rows.write.parquet(folder)
    return spark.readStream.schema(rows.schema).parquet(folder)


@pytest.mark.parametrize("block", SNIPPETS_IN_A_SESSION, ids=lambda block: block.name)
def test_snippet(block, spark, kafka, events, tmp_path):
    """A block starts a query, or is lines of options, or has definitions."""
    own = f"events-{re.sub('[^a-z0-9]', '-', block.name.lower())}"
    code = block.text.replace("broker:9092", kafka.bootstrap_servers)
    code = code.replace('"/checkpoints/', f'"{tmp_path}/').replace('"/var/log/', f'"{tmp_path}/')
    code = code.replace("port=9404", "port=0")
    code = re.sub(r'"events(-to-kafka)?"', rf'"{own}\1"', code)
    for action in (".start()", ".save()"):
        code = code.replace(action, f".options(**one_broker){action}")
    one_broker = ONE_BROKER if "exactly-once" in code else {}
    if code.lstrip().startswith("."):
        options = eval(f"(options{code})", {"options": Options(one_broker)})
        if not options:
            pytest.skip("it names code of the reader's own: tests/unit/test_your_own_code.py")
        rows = spark.range(EVENTS).selectExpr("CAST(id AS STRING) AS value")
        writer = rows.write.format("pykafka-sink").mode("append").options(**options)
        writer.option("kafka.bootstrap.servers", kafka.bootstrap_servers).save(topic=own)
        assert len(read_topic(kafka.bootstrap_servers, own)) == EVENTS
        return
    names = {"spark": spark, "events": events, "one_broker": one_broker}
    exec(compile(code, block.name, "exec"), names)
    if "listening" in names:
        names["listening"].close()
    if "query" in names:
        names["query"].processAllAvailable()
        names["query"].stop()
        assert len(read_topic(kafka.bootstrap_servers, own)) == EVENTS


@pytest.mark.long
def test_the_quickstart_in_a_virtual_environment_that_is_not_activated(tmp_path):
    script = tmp_path / "quickstart.py"
    script.write_text(QUICKSTART.text, encoding="utf-8")
    done = FreshPython.create(tmp_path).run(script)
    assert done.returncode == 0, done.stderr
    values = done.stdout.split()
    (shown,) = blocks("README.md", "text")
    assert values == shown.text.split()


@pytest.mark.long
def test_the_tutorial_prints_what_it_shows(tmp_path):
    script = tmp_path / "tutorial.py"
    script.write_text("\n".join(block.text for block in blocks(TUTORIAL, "python")), "utf-8")
    done = FreshPython.create(tmp_path).run(script)
    assert done.returncode == 0, done.stderr
    printed = [line for line in done.stdout.splitlines() if line]
    assert printed == [
        line for shown in blocks(TUTORIAL, "text") for line in shown.text.splitlines()
    ]


@pytest.mark.long
def test_the_notebook(tmp_path):
    notebook = nbformat.read(REPOSITORY / "examples" / "quickstart.ipynb", as_version=4)
    assert all(not cell.get("outputs") for cell in notebook.cells), "clear the outputs"
    resources = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(
        notebook, timeout=None, kernel_name="python3", resources=resources
    ).execute()
    printed = [
        output["text"]
        for cell in notebook.cells
        for output in cell.get("outputs", ())
        if output.get("name") == "stdout"
    ]
    assert any("1000 records acknowledged" in text for text in printed)
    assert sum(text.count('"square":') for text in printed) >= 5 + 3
