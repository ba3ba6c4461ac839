"""What the log says first in each of 21 outages, and after how long, beside Spark's own sink.

::

    python -m evidence first-lines
    python -m evidence first-lines --only "quota" --keep

Two Spark drivers, one with each sink, write the same rows to the same brokers with the same
options, all others by default. A stream begins, or is at its work, when the outage comes. What is measured is
the time from then to the first line of WARN or ERROR in the driver's standard error. An outage that both
sinks overcome by themselves may have no line. The exit code is 1 if pykafka-sink's line comes later than 10 s.
"""

from __future__ import annotations

import contextlib
import json
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from evidence.harness import pages
from evidence.harness.keeping import replace
from evidence.harness.planning import parser_of, show
from spark_kafka_sink.localkafka import AUTHORIZER
from spark_kafka_sink.localkafka.cluster import free_ports
from spark_kafka_sink.localkafka.settings import HOST, MAIN_LISTENER
from tests.local_kafka import PatientKafka

RESULTS = Path(__file__).with_name("first_lines.json")
_REPOSITORY = Path(__file__).parents[2]
SINKS = ("pykafka-sink", "kafka")
LATEST_S = 10.0
"""A line of ours that comes later is too late."""

_WAIT_S = 150.0
"""Longer than ``delivery.timeout.ms``, after which both sinks fail."""
_READY_S = 120.0
_EVERY_S = 0.05
_GOES_ON_BATCHES, _GOES_ON_S = 5, 15.0
"""A stream that has written so many micro-batches, for so long, has got over it."""
_LINE = re.compile(r"^\S+ \S+ (WARN|WARNING|ERROR) (?P<text>.*)")
_NOISE = re.compile(
    r"ProcessingTimeExecutor|NativeCodeLoader|Aborting commit|Aborted commit|WriteToDataSourceV2Exec|Utils: |is falling behind|AdminClientConfig|ProducerConfig"
    r"|ResolveWriteToStream|These configurations|TaskSetManager: Stage|SparkStringUtils"
    r"|UNIX|unix\.domain|PKS-AUTH-001|PKS-TLS-001"
)
"""Lines of a healthy stream."""


_FAILED = re.compile(r"terminated with error|Exception in task|Lost task|failed 1 times")
"""Lines whose cause is in the lines below them."""
_TRACEBACK_LINES = 200
_CODE = re.compile(r"PKS-[A-Z]+-\d+")
_CAUSE = re.compile(r"spark_kafka_sink[\w.]*: (.*\[PKS-[A-Z]+-\d+\])")
_CAUSED_BY = re.compile(r"(?s:.*)Caused by: (.*)")
_EXCEPTION = re.compile(r"((?:\w+\.)+\w*(?:Exception|Error): .*)")


class Silent:
    """An address that answers no packet: the queue of its connections is full."""

    def __enter__(self):
        self._server = socket.create_server((HOST, 0), backlog=0)
        self.address = "{}:{}".format(*self._server.getsockname())
        self._fillers = []
        for _ in range(8):
            filler = socket.socket()
            filler.setblocking(False)
            filler.connect_ex(self._server.getsockname())
            self._fillers.append(filler)
        return self

    def __exit__(self, *_):
        for each in (*self._fillers, self._server):
            each.close()


class World(NamedTuple):
    """What outages come to. silent: an address that answers no packet"""

    kafka: PatientKafka
    silent: str

    @property
    def servers(self):
        """Of the listener in clear text."""
        return self.kafka.bootstrap_servers_of(MAIN_LISTENER)

    def replicas(self, topic):
        """The brokers that have partition 0, its leader first."""
        described = self.kafka.run_tool(
            "TopicCommand",
            *("--bootstrap-server", self.servers, "--describe", "--topic", topic),
        )
        leader = int(re.search(r"Leader: (\d+)", described)[1])
        every = [int(r) for r in re.search(r"Replicas: ([\d,]+)", described)[1].split(",")]
        return sorted(every, key=lambda replica: replica != leader)

    def configure(self, kind, name, change):
        """Change a setting: ``--add-config`` of the topic, or of all clients if ``name`` is ''."""
        entity = ("--entity-name", name) if name else ("--entity-default",)
        self.kafka.run_tool(
            "ConfigCommand",
            *("--bootstrap-server", self.servers, "--alter"),
            *("--entity-type", kind, *entity, *change),
        )


class Outage(NamedTuple):
    """One row.

    happen: begins it, returns what ends it; None: the stream begins with it
    options: in place of the stream's own
    may_go_on: a stream may get over it without a line
    """

    cause: str
    happen: Callable | None = None
    options: Callable = lambda _: {}
    replicas: int = 1
    configs: dict = {}  # noqa: RUF012
    has_topic: bool = True
    may_go_on: bool = False


def in_threads(function, arguments):
    """All at once: a broker serves when there is a quorum."""
    with ThreadPoolExecutor() as threads:
        return list(threads.map(function, arguments))


def killed(which):
    """Brokers are killed, those that ``which`` names, and come back."""

    def happen(world, topic):
        victims = which(world, topic)
        return (
            lambda: [world.kafka.kill(broker) for broker in victims],
            lambda: in_threads(world.kafka.restart, victims),
        )

    return happen


def paused(which):
    """Brokers are stopped with SIGSTOP: connections stay, nobody answers."""

    def happen(world, topic):
        victims = which(world, topic)
        return (
            lambda: [world.kafka.pause(broker) for broker in victims],
            lambda: [world.kafka.resume(broker) for broker in victims],
        )

    return happen


def the_leader(world, topic):
    return world.replicas(topic)[:1]


def all_brokers(world, topic):
    return list(world.kafka.broker_ids)


def a_follower(world, topic):
    """The broker that has the other replica of two."""
    return world.replicas(topic)[1:]


def deleted(world, topic):
    """Nobody creates it again."""
    tool = ("TopicCommand", "--bootstrap-server", world.servers, "--delete", "--topic", topic)
    return lambda: world.kafka.run_tool(*tool), lambda: None


def changed(kind, named, text):
    """A setting of the topic, or of all clients, is added, and taken away."""

    def happen(world, topic):
        name = topic if named else ""
        return (
            lambda: world.configure(kind, name, ("--add-config", text)),
            lambda: world.configure(kind, name, ("--delete-config", text.split("=")[0])),
        )

    return happen


def servers(text):
    return lambda world: {"kafka.bootstrap.servers": text(world)}


def login(**options):
    """Of the secured listener, with changes; "" leaves one out."""

    def change(world):
        given = world.kafka.client_options() | options
        return {name: text for name, text in given.items() if text}

    return change


def write_is_denied(world, topic):
    """Nobody but brokers may write to the topic from now on."""
    rule = ("--deny-principal", "User:*", "--operation", "Write", "--topic", topic)
    tool = ("AclCommand", "--bootstrap-server", world.servers)
    return (
        lambda: world.kafka.run_tool(*tool, "--add", *rule),
        lambda: world.kafka.run_tool(*tool, "--remove", "--force", *rule),
    )


_LOGIN = "org.apache.kafka.common.security"
_NO_SASL = {"kafka.sasl.jaas.config": "", "kafka.sasl.mechanism": ""}
OUTAGES = (
    Outage("the only replica's broker is killed", killed(the_leader)),
    Outage(
        "the leader of two replicas is killed, the other takes over",
        killed(the_leader),
        replicas=2,
        may_go_on=True,
    ),
    Outage("all brokers are killed", killed(all_brokers)),
    Outage("the only replica's broker hangs", paused(the_leader)),
    Outage("all brokers hang", paused(all_brokers)),
    Outage(
        "one of two replicas is away, min.insync.replicas=2",
        killed(a_follower),
        replicas=2,
        configs={"min.insync.replicas": "2"},
    ),
    Outage("a quota of 500 bytes per second", changed("clients", False, "producer_byte_rate=500")),
    Outage("max.message.bytes is lowered to 100", changed("topics", True, "max.message.bytes=100")),
    Outage("the topic is deleted", deleted),
    Outage("the right to write is taken away", write_is_denied, options=login()),
    Outage("the topic does not exist", has_topic=False),
    Outage("the name of the servers is unknown", options=servers(lambda _: "kafka.invalid:9092")),
    Outage(
        "no server listens at the address",
        options=servers(lambda _: f"{HOST}:{free_ports(1, HOST)[0]}"),
    ),
    Outage("the address answers no packet", options=servers(lambda world: world.silent)),
    Outage(
        "the first of two addresses answers no packet",
        options=servers(lambda world: f"{world.silent},{world.servers}"),
        may_go_on=True,
    ),
    Outage(
        "brokers advertise an address that answers no packet",
        options=servers(lambda world: world.kafka.bootstrap_servers_of("MOVED")),
    ),
    Outage(
        "a controller's port",
        options=servers(lambda world: "{}:{}".format(*world.kafka.controller_address(1))),
    ),
    Outage(
        "clear text to a TLS listener",
        options=login(**{"kafka.security.protocol": "PLAINTEXT"}, **_NO_SASL),
    ),
    Outage(
        "TLS to a listener of clear text",
        options=lambda world: {
            **login(**{"kafka.security.protocol": "SSL"}, **_NO_SASL)(world),
            "kafka.bootstrap.servers": world.servers,
        },
    ),
    Outage(
        "a wrong password",
        options=login(
            **{
                "kafka.sasl.jaas.config": f"{_LOGIN}.scram.ScramLoginModule required "
                'username="alice" password="wrong";'
            }
        ),
    ),
    Outage(
        "the brokers' certificate is of an unknown authority",
        options=login(
            **{
                "kafka.ssl.truststore.certificates": "",
                "kafka.ssl.truststore.type": "",
                "kafka.ssl.truststore.location": "",
                "kafka.ssl.truststore.password": "",
            }
        ),
    ),
)


class Driver:
    """A driver with one sink and one stream, and its log. A context manager."""

    def __init__(self, sink, folder):
        self.sink = sink
        self._log = folder / "log"
        self._checkpoint = folder / "checkpoint"
        self._end = 0

    def __enter__(self):
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "evidence.outage.stream", self.sink],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=_REPOSITORY,
            )
        return self

    def __exit__(self, *_):
        self._process.kill()
        self._process.wait()

    def start(self, options):
        self._ask(options=options, checkpoint=str(self._checkpoint))
        return self

    def state(self):
        """The number of its latest micro-batch, and what ended the stream."""
        return self._ask()

    def _ask(self, **words):
        self._process.stdin.write(json.dumps(words) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, f"{self.sink}'s driver has ended: {self._log.read_text()[-3000:]}"
        return json.loads(answer)

    def await_batch(self, number):
        deadline = time.monotonic() + _READY_S
        while (state := self.state())["batch"] < number:
            assert state["error"] is None, state["error"]
            assert time.monotonic() < deadline, f"{self.sink} has written nothing"
            time.sleep(_EVERY_S)

    def forget(self):
        """What is in the log by now does not count."""
        self._end = self._log.stat().st_size

    def first_line(self):
        """The first line of WARN or ERROR that counts; None. Of a failed task, its cause."""
        with self._log.open("rb") as log:
            log.seek(self._end)
            new = log.read().decode("utf-8", "replace")
        lines = new.splitlines()[: None if new.endswith("\n") else -1]
        for number, line in enumerate(lines):
            found = _LINE.match(line)
            if not found or _NOISE.search(line):
                continue
            if self.sink == SINKS[0] and not (_CODE.search(line) or _FAILED.search(line)):
                continue  # Spark says it, not the sink
            if not _FAILED.search(line):
                return found["text"]
            if cause := cause_of("\n".join(lines[number + 1 : number + _TRACEBACK_LINES])):
                return cause
        return None


def measure(world, number, outage):
    """One row of the table."""
    topic = f"outage-{number}"
    if outage.has_topic:
        world.kafka.create_topic(topic, 1, outage.replicas, outage.configs)
    options = {
        "kafka.bootstrap.servers": world.servers,
        "topic": topic,
        **outage.options(world),
    }
    with contextlib.ExitStack() as stack:
        drivers = []
        for sink in SINKS:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            drivers.append(stack.enter_context(Driver(sink, folder)))
        for driver in drivers:
            driver.state()  # it is ready then
        began = {}
        if outage.happen is None:
            for driver in drivers:
                driver.forget()
                began[driver.sink] = time.monotonic()
                driver.start(options)
        else:
            for driver in drivers:
                driver.start(options).await_batch(1)
            happen, undo = outage.happen(world, topic)
            for driver in drivers:
                driver.forget()
            stack.callback(undo)
            happen()  # what one of Kafka's tools changes, is changed at its end
            began = dict.fromkeys(SINKS, time.monotonic())
        with ThreadPoolExecutor() as threads:
            lines = threads.map(await_line, drivers, [began[sink] for sink in SINKS])
            by_sink = dict(zip(SINKS, lines))
    return {"cause": outage.cause, **by_sink}


def await_line(driver, began):
    """The first line, and the seconds to it. A stream that goes on needs none."""
    first = None
    while (seconds := time.monotonic() - began) < _WAIT_S:
        line, state = driver.first_line(), driver.state()
        if line is None and state["error"]:
            line = cause_of(state["error"])
        if line is not None:
            return {"seconds": round(seconds, 1), "line": line}
        first = state["batch"] if first is None else first
        if state["batch"] >= first + _GOES_ON_BATCHES and seconds > _GOES_ON_S:
            return {"seconds": None, "line": None}
        time.sleep(_EVERY_S)
    return {"seconds": None, "line": f"(nothing within {_WAIT_S:.0f} s)"}


def cause_of(error):
    """The innermost cause in the text of an exception; None if there is none."""
    found = _CAUSE.search(error) or _CAUSED_BY.search(error) or _EXCEPTION.search(error)
    return found[1] if found else None


def read():
    return json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else []


def with_kept(rows):
    """The new rows, and those that are kept of other outages."""
    kept = read()
    by_cause = {row["cause"]: row for row in (*kept, *rows)}
    return [by_cause[o.cause] for o in OUTAGES if o.cause in by_cause]


def is_too_late(row):
    """Whether our line comes too late, or does not come though the rows cannot be written."""
    told = row[SINKS[0]]
    if told["line"] is None:
        return not {o.cause: o.may_go_on for o in OUTAGES}[row["cause"]]
    return told["seconds"] is None or told["seconds"] > LATEST_S


def main(words=None):
    parser = parser_of(__doc__)
    parser.add_argument("--only", default="", help="outages whose cause has this text")
    parser.add_argument("--keep", action="store_true", help="write results")
    given = parser.parse_args(words)
    chosen = [o for o in OUTAGES if given.only in o.cause]
    if not chosen:
        parser.error(f"no outage has '{given.only}' in its cause")
    if given.plan:
        return show(outage.cause for outage in chosen)
    rows = run(chosen)
    if given.keep:
        replace(RESULTS, json.dumps(with_kept(rows), indent=1, ensure_ascii=False) + "\n")
        pages.write(PAGES)
    print(table(rows))
    late = [row["cause"] for row in rows if is_too_late(row)]
    print(f"{len(rows)} outages, {len(late)} told later than {LATEST_S:.0f} s: {late}")
    return 1 if late else 0


def run(outages):
    rows = []
    with (
        Silent() as silent,
        PatientKafka(
            3,
            server_properties={
                **AUTHORIZER,
                "auto.create.topics.enable": "false",
                "super.users": "User:ANONYMOUS",
                "allow.everyone.if.no.acl.found": "true",
            },
            security="sasl_ssl",
            listeners={"MOVED": "PLAINTEXT"},
            advertised={"MOVED": [silent.address] * 3},
        ) as kafka,
    ):
        for number, outage in enumerate(outages):
            rows.append(measure(World(kafka, silent.address), number, outage))
            print(json.dumps(rows[-1], ensure_ascii=False), flush=True)
            kafka.await_in_sync()
    return rows


def table(rows):
    """The results as a table of Markdown."""
    heads = ["what happens", "pykafka-sink says first", "s", "Spark's own sink says first", "s"]
    cells = [
        [row["cause"], *(cell for sink in SINKS for cell in cells_of(row[sink]))] for row in rows
    ]
    return pages.table(heads, cells)


def cells_of(told):
    """The line, and the seconds to it."""
    seconds = told["seconds"]
    return shown(told["line"]), "–" if seconds is None else f"{seconds:.1f}"


def shown(line, longest=90):
    """A line as it is shown: without addresses of this run, and not longer than ``longest``."""
    if line is None:
        return "nothing: it goes on"
    text = re.sub(r"127\.0\.0\.1:\d+", "broker:9092", line)
    text = re.sub(r"outage-\d+", "events", text).replace("|", "\\|")
    text = re.sub(r"^[\w.]+: ", "", text) if text.startswith("spark_kafka_sink") else text
    return f"`{text if len(text) <= longest else text[:longest] + '…'}`"


PAGES = {pages.DOCS / "troubleshooting.md": lambda: {"first lines": table(read())}}
