"""Every two capabilities together at least once, on real Spark and Kafka, with a worker killed.

python -m evidence pairs                    # all jobs of seed 1
python -m evidence pairs --only 12 17       # these again

Each job writes 3,000 rows, and one of its Python workers is killed in the middle. What is in the
topics then is read back by other clients, and compared row by row. Writes evidence/pairs/results.json
and the table in docs/internals/pairs.md.
"""

import hashlib
import json
import os
import subprocess
import tempfile
import time
from collections import Counter
from io import BytesIO
from pathlib import Path

import fastavro

from evidence.harness import pages
from evidence.harness.environments import ON_CLUSTERS, PAIRS, ROOT, environment, interpreter
from evidence.harness.planning import parser_of, show
from evidence.pairs.covering import FACTORS, all_pairs, jobs, pairs_of
from evidence.pairs.daemon import ARMED, KILLED
from evidence.pairs.program import BAD, EPOCH_S, PARTITIONS, ROWS, TOPICS
from evidence.pairs.user_code import MARK
from spark_kafka_sink.localkafka import LocalSecurity
from tests.formats.protobuf_files import descriptor_set, message_class, one_message
from tests.local_kafka import PatientKafka
from tests.reading import read_topic
from tests.twin import partition_for_key

RESULTS = Path(__file__).with_name("results.json")
FEWEST_JOBS = 60
MECHANISMS = {"SCRAM": "SCRAM-SHA-512", "PLAIN": "PLAIN"}
RATE = 400_000
AVRO = {
    "type": "record",
    "name": "Row",
    "fields": [{"name": "id", "type": "long"}, {"name": "text", "type": "string"}],
}
PROTOBUF = descriptor_set([one_message(id="int64", text="string")])
EXACTLY_ONCE = "exactly-once"


def plain(kafka):
    """The addresses of the listener without security."""
    return kafka.bootstrap_servers_of("PLAINTEXT")


# --- options -------------------------------------------------------------------------------------


def options_of(factors, name, kafka, folder):
    """The options of a job."""
    if factors["listener"] == "PLAINTEXT":
        options = {"kafka.bootstrap.servers": plain(kafka)}
    else:
        mechanism = MECHANISMS.get(factors["listener"])
        options = kafka.client_options(listener=factors["listener"], mechanism=mechanism)
    options |= {
        "kafka.compression.type": factors["codec"],
        "kafka.max.in.flight.requests.per.connection": factors["in_flight"],
        "kafka.batch.size": factors["batch_size"],
        "kafka.buffer.memory": factors["memory"],
        "kafka.linger.ms": "0",
        "delivery.guarantee": factors["guarantee"],
        "metrics.log": "false",
    }
    if factors["delivery"] != "idempotent":
        options["kafka.enable.idempotence"] = "false"
        options["kafka.acks"] = factors["delivery"].removeprefix("acks ")
    if factors["guarantee"] == EXACTLY_ONCE:
        options["transactional.id.prefix"] = name
        options["transaction.log.replication.factor"] = "1"
    if factors["topic"] == "option":
        options["topic"] = name
    if factors["format"] != "raw":
        options |= {"value.format": factors["format"], "value.columns": "id,text"}
    if factors["format"] == "avro":
        options["value.avro.schema"] = json.dumps(AVRO)
    if factors["format"] == "protobuf":
        path = folder / "row.desc"
        path.write_bytes(PROTOBUF)
        options["value.protobuf.descriptor.file"] = str(path)
        options["value.protobuf.message"] = "pkg.Root"
    if factors["dead_letters"] == "on":
        options["errors.tolerance"] = "all"
        options["errors.deadletterqueue.topic.name"] = f"{name}-dead"
    if factors["interceptor"] != "none":
        options["interceptors"] = "evidence.pairs.user_code:Marks"
    if factors["partitioner"] == "own function":
        options["kafka.partitioner"] = "evidence.pairs.user_code:by_length"
    if factors["rate"] == "limited":
        options["max.bytes.per.second.per.task"] = str(RATE)
    return options


def topics_of(factors, name):
    """Where rows go, dead letters apart."""
    if factors["topic"] == "option":
        return [name]
    return [f"{name}-{number}" for number in range(TOPICS)]


# --- what must be there --------------------------------------------------------------------------


def decode(factors, value):
    """The id and the text of a record's value, by the format's official reader."""
    if factors["format"] == "raw":
        return int(value[:10]), value[10:].decode()
    if factors["format"] == "json":
        row = json.loads(value)
    elif factors["format"] == "avro":
        row = fastavro.schemaless_reader(BytesIO(value), AVRO, AVRO)
    else:
        message = message_class(PROTOBUF, "pkg.Root").FromString(value)
        return message.id, message.text
    return row["id"], row["text"]


def wrong_content(factors, number, text, record):
    """What is wrong with a record of the row ``number``; empty if nothing is."""
    mark = MARK if factors["interceptor"] != "none" else ""
    key = {"none": None, "unique": f"key-{number}", "few": f"key-{number % 7}"}[factors["key"]]
    headers = (("n", str(number).encode()),) if factors["headers"] == "column" else ()
    wanted = {
        "text": (hashlib.sha256(str(number).encode()).hexdigest() + mark, text),
        "key": (key and key.encode(), record.key),
        "headers": (headers, record.headers),
        "timestamp": ((EPOCH_S + number) * 1000, record.timestamp),
        "partition": (partition_of(factors, number, record), record.partition),
    }
    return {name: pair for name, pair in wanted.items() if pair[0] != pair[1]}


def partition_of(factors, number, record):
    """Where the record has to be; its own partition where the sink may choose."""
    if factors["partitioner"] == "column":
        return number % PARTITIONS
    if factors["partitioner"] == "own function":
        return len(record.value) % PARTITIONS
    return record.partition if record.key is None else partition_for_key(record.key, PARTITIONS)


def check(factors, name, kafka):
    """Read everything back. Return what is wrong, and how many records are there twice."""
    problems = []
    copies, letters = Counter(), Counter()
    for topic_number, topic in enumerate(topics_of(factors, name)):
        latest = {}
        for record in read_topic(plain(kafka), topic):
            number, text = decode(factors, record.value)
            copies[number] += 1
            if wrong := wrong_content(factors, number, text, record):
                problems.append(f"row {number} in {topic}: {wrong}")
            if factors["topic"] == "column" and number % TOPICS != topic_number:
                problems.append(f"row {number} is in {topic}")
            # Tasks write ranges of rows; between them there is no order.
            place = record.partition, number // (ROWS // 12)
            if factors["guarantee"] == EXACTLY_ONCE and latest.get(place, -1) >= number:
                problems.append(f"row {number} in {topic} comes after {latest[place]}")
            latest[place] = number
    bad = set(BAD) if factors["dead_letters"] == "on" else set()
    if bad:
        for record in read_topic(plain(kafka), f"{name}-dead"):
            number, _ = decode(factors, record.value)
            letters[number] += 1
            if ("__connect.errors.cause", b"bad-timestamp") not in record.headers:
                problems.append(f"dead letter {number}: {record.headers}")
    good = set(range(ROWS)) - bad
    if lost := sorted(good - set(copies)) + sorted(bad - set(letters)):
        problems.append(f"{len(lost)} rows are lost: {lost[:10]}")
    if strange := sorted(set(copies) - good) + sorted(set(letters) - bad):
        problems.append(f"{len(strange)} rows are where they do not belong: {strange[:10]}")
    doubled = sum((copies + letters).values()) - len(copies) - len(letters)
    if doubled and factors["guarantee"] == EXACTLY_ONCE:
        problems.append(f"{doubled} rows are there twice")
    return problems, doubled


# --- running -------------------------------------------------------------------------------------


class Spark:
    """A process of one Spark version that runs jobs."""

    def __init__(self, version, folder):
        self.folder = folder
        [pair] = [p for p in (*PAIRS, *ON_CLUSTERS) if p.spark == version][:1]
        python = interpreter(pair.python)
        assert python is not None, f"there is no Python {pair.python}"
        self._process = subprocess.Popen(
            [environment(pair, python), "-m", "evidence.pairs.program", folder],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._answer()

    def _answer(self):
        for line in self._process.stdout:
            if line.startswith("{"):
                return json.loads(line)
        raise AssertionError(f"Spark ended: {self._process.wait()}")

    def run(self, **job):
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        return self._answer()["error"]

    def close(self):
        self._process.stdin.close()
        self._process.wait()


def run_job(spark, kafka, number, factors):
    """Write one job, and judge it."""
    name = f"pairs-{number}"
    (spark.folder / KILLED).unlink(missing_ok=True)
    for topic in topics_of(factors, name):
        kafka.create_topic(topic, PARTITIONS)
    if factors["dead_letters"] == "on":
        kafka.create_topic(f"{name}-dead", PARTITIONS)
    started = time.monotonic()
    options = options_of(factors, name, kafka, spark.folder)
    error = spark.run(name=name, factors=factors, options=options)
    seconds = round(time.monotonic() - started, 1)
    problems, doubled = check(factors, name, kafka)
    if error is not None:
        problems.insert(0, error[-1500:])
    if not (spark.folder / KILLED).exists():
        problems.append("no worker was killed")
    (spark.folder / ARMED).unlink(missing_ok=True)
    result = {"number": number, "factors": factors, "doubled": doubled, "seconds": seconds}
    return {**result, "problems": problems[:10]}


def run(wanted, kafka, folder):
    """Yield the results of the jobs, Spark by Spark."""
    for version in FACTORS["spark"]:
        chosen = {n: job for n, job in wanted.items() if job["spark"] == version}
        if not chosen:
            continue
        home = folder / version
        home.mkdir()
        spark = Spark(version, home)
        try:
            for number, factors in chosen.items():
                yield run_job(spark, kafka, number, factors)
        finally:
            spark.close()


def tables():
    """Of docs/internals/pairs.md."""
    kept = json.loads(RESULTS.read_text(encoding="utf-8"))
    covered = set().union(*(pairs_of(result["factors"]) for result in kept["jobs"]))
    figures = {
        "seed": kept["seed"],
        "jobs": len(kept["jobs"]),
        "pairs that are possible": len(all_pairs()),
        "pairs in these jobs": len(all_pairs() & covered),
        "jobs whose checks failed": sum(bool(result["problems"]) for result in kept["jobs"]),
        "jobs with rows that were written twice": sum(r["doubled"] > 0 for r in kept["jobs"]),
    }
    factors = ((factor, ", ".join(levels)) for factor, levels in FACTORS.items())
    return {
        "figures": pages.table(["what", "how many"], figures.items()),
        "factors": pages.table(["factor", "levels"], factors),
    }


PAGES = {pages.DOCS / "internals/pairs.md": tables}


def main(words=None):
    parser = parser_of(__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int, nargs="*", help="numbers of jobs")
    arguments = parser.parse_args(words)
    made = dict(enumerate(jobs(arguments.seed, FEWEST_JOBS)))
    wanted = {n: made[n] for n in arguments.only or made}
    if arguments.plan:
        return show(f"{number}: {factors}" for number, factors in wanted.items())
    listeners = {
        "TLS": LocalSecurity("SSL"),
        "SCRAM": LocalSecurity("SASL_SSL", ("SCRAM-SHA-512",)),
        "PLAIN": LocalSecurity("SASL_PLAINTEXT", ("PLAIN",)),
    }
    results = []
    with tempfile.TemporaryDirectory() as folder, PatientKafka(security=listeners) as kafka:
        for result in run(wanted, kafka, Path(folder)):
            results.append(result)
            print(json.dumps(result), flush=True)
    bad = [result for result in results if result["problems"]]
    print(f"{len(results)} jobs, {len(bad)} failed: {[r['number'] for r in bad]}")
    if not arguments.only:
        RESULTS.write_text(json.dumps({"seed": arguments.seed, "jobs": results}, indent=1) + "\n")
        pages.write(PAGES)
    return 1 if bad else 0
