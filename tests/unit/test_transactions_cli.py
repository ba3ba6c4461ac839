"""``pykafka-sink transactions``: arguments, output, questions, exit codes; brokers are simulated."""

import io
import json
import re
import socket
from contextlib import contextmanager

import pytest

from spark_kafka_sink.__main__ import main
from spark_kafka_sink.base.model import TopicPartition
from spark_kafka_sink.tools import transaction_report
from spark_kafka_sink.tools import transactions as transactions_cli
from spark_kafka_sink.tools.command import print_lines
from spark_kafka_sink.transactions.inspection import (
    OpenProducer,
    PrefixDescription,
    PrefixOverview,
    ReadPosition,
    TransactionDetails,
)
from spark_kafka_sink.transactions.model import Decision, Driver, Phase, Written, format_duration
from tests.simulation.operating import LOG_TOPIC, Operated, driver, unit
from tests.tables import each_row

A, B = b"a", b"b"
NOON_MS = 1_772_366_400_000  # 2026-03-01T12:00:00Z
SERVER = ("--bootstrap-server", "a:1")
COMMANDS = ("list", "describe", "resolve", "abort", "release")


@pytest.fixture
def operated(monkeypatch):
    made = Operated()

    @contextmanager
    def connected(arguments):
        yield made.client.admin

    monkeypatch.setattr(transactions_cli, "connected", connected)
    return made


class Terminal(io.StringIO):
    def isatty(self):
        return True


def run(name, *more):
    servers = ("--bootstrap-server", "simulated:1", "--log-topic", LOG_TOPIC)
    prefix = () if name == "list" else ("--prefix", "p")
    return main(["transactions", name, *servers, *prefix, *more])


def test_wrong_usage(capsys):
    wrong = [["list"], ["list", *SERVER, "--timeout", "0"], ["list", *SERVER, "--timeout", "1s"]]
    for command in COMMANDS[1:]:
        wrong += [[*SERVER, command], [command, *SERVER]]
    wrong.append(["resolve", *SERVER, "--prefix", "p", "--as-written", "--as-not-written"])
    for arguments in wrong:
        with pytest.raises(SystemExit) as raised:
            main(["transactions", *arguments])
        assert raised.value.code == 2
        assert "usage: pykafka-sink transactions" in capsys.readouterr().err


# --- output -------------------------------------------------------------------------------------


def test_a_terminal_gets_states_in_colour(monkeypatch):
    shown = Terminal()
    monkeypatch.setattr("sys.stdout", shown)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    print_lines(["PREFIX  PHASE", "events  PARTIAL", "others  DONE", "orders  committed"])
    header, partial, done, plain = shown.getvalue().splitlines()
    assert header.startswith("\x1b[")
    assert partial.startswith("events  \x1b[")
    assert done.startswith("others  \x1b[")
    assert plain == "orders  committed"


# --- arguments ----------------------------------------------------------------------------------


# --- confirmation -------------------------------------------------------------------------------


def test_without_a_terminal_nothing_is_done(operated, monkeypatch, capsys):
    operated.batch(7, [A, B], driver(1), "commit.decided")
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    epoch = operated.world.state("p.driver")
    assert run("resolve") == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "2 transaction(s) will be committed, 2 records visible" in shown.err
    assert "'p' stops with an error" in shown.err
    assert shown.err.endswith(" --yes confirms [PKS-TOOL-006]\n")
    assert operated.world.state("p.driver") == epoch
    assert operated.visible() == []


@pytest.mark.parametrize("answer", ["", "n\n", "\n", "yesterday\n", "y\n", "YES\n"])
def test_any_answer_on_the_terminal_but_yes_is_no(operated, monkeypatch, capsys, answer):
    operated.batch(7, [A, B], driver(1), "commit.decided")
    monkeypatch.setattr("sys.stdin", Terminal(answer))
    is_yes = answer in ("y\n", "YES\n")
    assert run("resolve", "--json") == (0 if is_yes else 2)
    shown = capsys.readouterr()
    refusal = "pykafka-sink: not confirmed, nothing was done [PKS-TOOL-006]\n"
    words = "Go on? [y/N] " if is_yes else refusal
    assert shown.err.endswith(words)
    assert not is_yes or json.loads(shown.out)["record"]["phase"] == "DONE"
    assert operated.visible() == ([A, B] if is_yes else [])


def test_an_interrupt_is_no_traceback(operated, monkeypatch, capsys):
    class Interrupted(Terminal):
        def readline(self, size=-1, /):
            raise KeyboardInterrupt

    operated.batch(7, [A, B], driver(1), "commit.decided")
    monkeypatch.setattr("sys.stdin", Interrupted())
    assert run("resolve") == 1
    assert "interrupted" in capsys.readouterr().err
    assert operated.visible() == []


# --- exit codes ---------------------------------------------------------------------------------


def test_a_unit_that_is_finished_in_part_asks_for_a_choice(operated, capsys):
    _, second = operated.batch(7, [A, B], driver(1), "commit.decided")
    operated.lose(second)
    assert run("resolve", "--yes") == 2
    assert "Start the query again" in capsys.readouterr().out
    assert run("resolve", "--yes") == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "--as-written" in shown.err
    assert run("release", "--yes") == 2
    assert run("resolve", "--yes", "--as-not-written") == 0
    assert "counts as not written" in capsys.readouterr().out
    assert operated.record().phase is Phase.VOID


def test_abort_and_release(operated, capsys):
    transactions = operated.written(operated.protocol.plan(driver(1), None), [A, B])
    names = [t.transactional_id for t in transactions]
    assert run("abort", "--yes", "--transactional-id", "p.driver") == 2
    assert run("abort", "--yes", "--transactional-id", names[1], "--json") == 0
    result = json.loads(capsys.readouterr().out)
    assert result["aborted"] == names[1:]
    assert result["needs_choice"] is False
    assert run("release", "--yes") == 0
    assert capsys.readouterr().out == f"'p' is released\naborted {names[0]}\n"
    assert operated.record() is None


def test_a_failure_is_a_message(operated, capsys):
    for more, words in (([], "pykafka-sink: "), (["--log-topic", "x"], "no decision log 'x'")):
        servers = ["--bootstrap-server", "simulated:1" if more else "nonsense"]
        assert main(["transactions", "list", *servers, *more]) == 1
        assert words in capsys.readouterr().err


@pytest.mark.slow
def test_a_wrong_address_is_told_in_seconds(capsys):
    """An hour's patience is for brokers that answer: otherwise this test would not end."""
    with socket.socket() as bound:  # not listening: nobody else can
        bound.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{bound.getsockname()[1]}"
        arguments = ["--bootstrap-server", address, "--timeout", "3600000"]
        assert main(["transactions", "list", *arguments]) == 1
    error = capsys.readouterr().err
    assert f"no broker reachable: {address} (Connection refused)" in error


# --- what is shown ------------------------------------------------------------------------------


def test_list(operated, capsys):
    assert run("list") == 0
    assert (
        capsys.readouterr().out == f"no prefix has a record in {LOG_TOPIC}, and nothing is open\n"
    )
    operated.written(operated.protocol.plan(driver(1), None), [A])
    operated.batch(3, [B], driver(2), prefix="other")
    assert run("list", "--json") == 0
    found = json.loads(capsys.readouterr().out)["prefixes"]
    assert [one["prefix"] for one in found] == ["other", "p"]
    assert found[1]["record"]["unit"] is None
    assert found[1]["open_transactions"][0]["partitions"] == [{"topic": "t", "partition": 0}]
    assert run("list", "--prefix", "p") == 0
    shown = capsys.readouterr().out
    assert "CLAIMED" in shown
    assert "other" not in shown
    assert run("list", "--prefix", "unknown") == 0
    assert "no record" in capsys.readouterr().out


def test_describe(operated, capsys):
    operated.batch(7, [A, B], driver(1), "commit.decided")
    assert run("describe", "--topic", "t") == 0
    shown = capsys.readouterr().out
    for part in ("Phase:       DECIDED", "Checkpoint:  /ck", "to be committed  Ongoing", "nobody"):
        assert part in shown
    assert run("describe", "--topic", "missing") == 1


def test_a_record_that_nobody_can_read(operated, capsys):
    operated.batch(7, [A], driver(1))
    operated.write_raw(b'{"format":3}')
    assert run("describe") == 0
    assert "resolve --prefix p shows it" in capsys.readouterr().out
    assert run("abort", "--yes") == 1
    assert "resolve --prefix p shows" in capsys.readouterr().err
    assert run("resolve", "--yes") == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert '{"format":3}' in shown.err
    assert run("resolve", "--yes", "--as-not-written") == 0
    assert "replaced" in capsys.readouterr().out
    assert run("list") == 0
    assert "CLAIMED" in capsys.readouterr().out


OPEN = TransactionDetails(
    "orders.0123456789ab.0",
    "Ongoing",
    NOON_MS,
    900_000,
    1000,
    3,
    (TopicPartition("orders", 0), TopicPartition("orders", 1)),
)
OWNER = Driver("4f1c", "host-1", NOON_MS, "/ck", "q")


def test_the_text_of_list():
    decided = Decision(OWNER, Phase.DECIDED, unit(7), NOON_MS, 600)
    found = [
        PrefixOverview("orders", decided, "", (OPEN,)),
        PrefixOverview("torn", None, "not a decision", ()),
    ]
    assert transaction_report.overview_lines(found, "log", NOON_MS + 200_000) == [
        "PREFIX  PHASE       UNIT                        OPEN  OWNER",
        "orders  DECIDED     micro-batch 7 of query q-1  1     "
        "driver 4f1c of query 'q' on host-1, checkpoint /ck",
        "torn    UNREADABLE  -                           0     -",
        "",
        "TRANSACTIONAL ID       STATE    SINCE                 AGE         TIMEOUT  PRODUCER ID"
        "  EPOCH  PARTITIONS",
        "orders.0123456789ab.0  Ongoing  2026-03-01T12:00:00Z  3 min 20 s  15 min   1000       "
        "  3      orders-0,orders-1",
    ]
    many = OPEN._replace(partitions=tuple(TopicPartition("t", n) for n in range(200)))
    found = [PrefixOverview("orders", None, "", (many,))]
    assert transaction_report.overview_lines(found, "log", NOON_MS)[-1].endswith("t-6,t-7,… (200)")


@each_row(
    ("ms", "text"),
    [
        *((-5, "0 s"), (999, "0 s"), (59_999, "59 s"), (60_000, "1 min"), (200_000, "3 min 20 s")),
        *((3_600_000, "1 h"), (3_660_000, "1 h 1 min"), (90_000_000, "1 d 1 h")),
        (86_460_000, "1 d"),
    ],
)
def test_durations(ms, text):
    assert format_duration(ms) == text


def test_named_writes_are_listed_with_their_versions():
    nightly = Written("nightly", "orders", ((0, 41), (20260101, 20260131)))
    others = Written("by row", "", ((7, 7),), folded=3)
    decision = Decision(OWNER, written=(nightly, others))
    overview = PrefixOverview("orders", decision, "", ())
    lines = transaction_report.overview_lines([overview], "log", NOON_MS)
    assert lines[2:6] == [
        "",
        "PREFIX  WRITE ID  TOPIC                   VERSIONS",
        "orders  nightly   orders                  0–41, 20260101–20260131",
        "orders  by row    the topics of its rows  7; others up to 3 are not known",
    ]
    described = PrefixDescription(overview, (), ())
    assert lines[3] in transaction_report.description_lines(described, "log", NOON_MS)
    document = transaction_report.overview_document(overview, NOON_MS)
    assert document["record"]["written"][0]["ranges"] == ((0, 41), (20260101, 20260131))


def test_the_text_of_describe():
    former = Driver("77aa", "host-2", NOON_MS, "/ck/0", "q")
    claimed = Decision(OWNER, former=former)
    partition = TopicPartition("orders", 0)
    producers = (OpenProducer(1000, 3, 5, NOON_MS, "app"), OpenProducer(1001, 0, 7, -1))
    positions = (
        ReadPosition(partition, 5, 10, producers),
        ReadPosition(TopicPartition("orders", 1), problem="TOPIC_AUTHORIZATION_FAILED (29)"),
    )
    described = PrefixDescription(PrefixOverview("orders", claimed, "", ()), (), positions)
    lines = transaction_report.description_lines(described, "log", NOON_MS + 3_600_000)
    assert [re.split("  +", line.strip()) for line in lines] == [
        *(["Prefix:", "orders"], ["Log topic:", "log"], ["Owner:", "driver 4f1c"]),
        *(["Query name:", "q"], ["Host:", "host-1"], ["Since:", "2026-03-01T12:00:00Z (1 h ago)"]),
        ["Checkpoint:", "/ck"],
        [
            "Former:",
            "driver 77aa of query 'q' on host-2, checkpoint /ck/0, until the owner has decided",
        ],
        ["State:", "nothing was decided under this prefix yet"],
        *([""], ["Open transactions"], ["No open transactions."], [""]),
        ["Readers of committed records"],
        [
            *("PARTITION", "LAST STABLE OFFSET", "HIGH WATERMARK", "WAITING", "HELD BACK BY"),
            *("PRODUCER ID", "EPOCH", "FROM OFFSET", "LAST WRITE"),
        ],
        ["orders-0", "5", "10", "5", "app", "1000", "3", "5", "1 h ago"],
        ["then no coordinator knows it: a hanging transaction", "1001", "0", "7", "-"],
        ["orders-1", *"---", "not known: TOPIC_AUTHORIZATION_FAILED (29)", *"----"],
    ]
