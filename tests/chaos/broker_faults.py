"""What happens to brokers while a query writes exactly once: killed, hung, cut off from the others.

The query is held at a point of the commit protocol, so that it is known what it was doing.
"""

from spark_kafka_sink.base.model import TopicPartition
from tests.chaos.crash import HOLD, KILL_DRIVER, Trap
from tests.chaos.query_fault import QueryFault
from tests.chaos.readers import coordinator, end_told_by, leader_told_by, transactional_ids
from tests.chaos.scene import LOG

# --- who is who ---------------------------------------------------------------------------------


def _drivers_coordinator(scene):
    return coordinator(scene.kafka, f"{scene.prefix}.driver")


def _tasks_coordinator(scene):
    """Of a transaction that is about to be ended, where there is one."""
    states = transactional_ids(scene.kafka)
    tasks = sorted(i for i in states if i.startswith(f"{scene.prefix}.") and "driver" not in i)
    open_ones = [i for i in tasks if states[i] == "Ongoing"]
    return coordinator(scene.kafka, (open_ones or tasks)[0])


def _log_leader(scene):
    return leader_told_by(scene.kafka, scene.kafka.broker_ids[0], *LOG)


def _output_leader(scene):
    return leader_told_by(scene.kafka, scene.kafka.broker_ids[0], scene.topic, 0)


def _first_of_the_list(scene):
    return scene.kafka.broker_ids[0]


_DRIVERS = "the driver's coordinator"
_TASKS = "a task's coordinator"
_LOG = "the decision log's leader"
_OUTPUT = "an output partition's leader"
_FIRST = "the first bootstrap broker"
_ROLES = {
    _DRIVERS: _drivers_coordinator,
    _TASKS: _tasks_coordinator,
    _LOG: _log_leader,
    _OUTPUT: _output_leader,
    _FIRST: _first_of_the_list,
}


def _broker_that_is(scene, role):
    """Without transactions only output partitions have something to do with the query."""
    if scene.is_control and role in (_DRIVERS, _TASKS, _LOG):
        role = _OUTPUT
    return _ROLES[role](scene)


def _hold(scene, point):
    """Wait until the query is at ``point``; the trap that holds it."""
    held = Trap(point, HOLD)
    if point != "plan.claimed":  # only a new driver does that
        name = scene.set(held)
    else:
        scene.driver.kill()
        scene.dead()
        name = scene.set(held)
        scene.driver.start()
    scene.await_sprung(name)
    return name


def _replace_driver(scene, held):
    scene.driver.kill()
    scene.dead()
    scene.driver.traps.release(held)
    scene.driver.start()


# --- killed -------------------------------------------------------------------------------------


def _kill(point, role, with_driver=False):
    def happen(scene):
        held = _hold(scene, point)
        victim = _broker_that_is(scene, role)
        scene.kafka.kill(victim)
        if with_driver:
            _replace_driver(scene, held)
        else:
            scene.driver.traps.release(held)
        return _go_on_without(scene, victim, scene.kafka.restart)

    return happen


def _go_on_without(scene, victim, bring_back):
    scene.run_on(2)
    bring_back(victim)
    scene.kafka.await_in_sync()
    return {"broker": victim, **scene.check_open()}


KILLED = [
    QueryFault(
        "broker",
        "the driver's coordinator killed before EndTxn of the decision",
        _kill("commit.deciding", _DRIVERS),
    ),
    QueryFault(
        "broker",
        "the driver's coordinator killed during EndTxn of the tasks",
        _kill("commit.ending", _DRIVERS),
    ),
    QueryFault(
        "broker",
        "a task's coordinator killed during EndTxn",
        _kill("commit.ending", _TASKS),
    ),
    QueryFault(
        "broker",
        "a task's coordinator killed between decision and EndTxn",
        _kill("commit.decided", _TASKS),
    ),
    QueryFault(
        "broker",
        "a task's coordinator and the driver killed during EndTxn",
        _kill("commit.ending", _TASKS, with_driver=True),
    ),
]

# --- hung ---------------------------------------------------------------------------------------


def _hang(point, role):
    """SIGSTOP until the query has gone on without that broker."""

    def happen(scene):
        held = _hold(scene, point)
        victim = _broker_that_is(scene, role)
        scene.kafka.pause(victim)
        scene.driver.traps.release(held)
        return _go_on_without(scene, victim, scene.kafka.resume)

    return happen


def _hang_until_next_plan(scene):
    """The log's leader hangs while its successor gets the decision, and the driver dies of it. It
    wakes up, and does not know yet that it was deposed, when the next driver begins to plan.
    """
    held = _hold(scene, "commit.checked")
    victim = _broker_that_is(scene, _LOG)
    dies = scene.set(Trap("commit.decided", KILL_DRIVER))
    scene.kafka.pause(victim)
    scene.driver.traps.release(held)
    scene.await_sprung(dies)
    scene.dead()
    begins = scene.set(Trap("plan.begin", HOLD))
    with scene.bootstrap_begins_with(victim):
        scene.driver.start()
        scene.await_sprung(begins)
        scene.kafka.resume(victim)
        scene.driver.traps.release(begins)
        scene.run_on(2)
    scene.kafka.await_in_sync()
    return {"broker": victim, **scene.check_open()}


_HANGS_AT = (
    (_DRIVERS, "plan.fenced"),
    (_DRIVERS, "commit.deciding"),
    (_TASKS, "commit.decided"),
    (_TASKS, "commit.ending"),
    (_LOG, "plan.claimed"),
    (_LOG, "commit.checked"),
    (_OUTPUT, "task.written"),
    (_OUTPUT, "commit.decided"),
    (_FIRST, "plan.begin"),
    (_FIRST, "commit.begin"),
)

HUNG = [
    *(
        QueryFault("hung", f"{role} hangs at {point}", _hang(point, role))
        for role, point in _HANGS_AT
    ),
    QueryFault(
        "hung",
        f"{_LOG} hangs, the driver killed at commit.decided, the next one plans as it wakes up",
        _hang_until_next_plan,
    ),
]

# --- cut off ------------------------------------------------------------------------------------


def _await_deposed(scene, broker_id):
    """Until another leads the log: what both say then. The one that is cut off still answers."""
    watched = TopicPartition(scene.topic, 0) if scene.is_control else LOG
    other = next(i for i in scene.kafka.broker_ids if i != broker_id)

    def is_deposed():
        return leader_told_by(scene.kafka, other, *watched) not in (broker_id, -1)

    scene.until(is_deposed, "new leader of the decision log")
    told = leader_told_by(scene.kafka, broker_id, *watched)
    assert told == broker_id, f"broker {broker_id} is cut off, and knows leader {told}"
    return {"broker": broker_id, "leader": leader_told_by(scene.kafka, other, *watched)}


def _how_stale(scene, told):
    """Ends of the log, as both leaders tell them."""
    if scene.is_control:
        return told
    ends = {
        "end_told_when_cut_off": end_told_by(scene.kafka, told["broker"], LOG),
        "end_of_the_log": end_told_by(scene.kafka, told["leader"], LOG),
    }
    return {**told, **ends}


def _cut_off(point, dies_at):
    """The log's leader, until the query has gone on without it.

    dies_at: where the driver is killed then; the next one hears of the brokers from this one first
    """

    def happen(scene):
        held = _hold(scene, point)
        victim = _broker_that_is(scene, _LOG)
        with scene.links.cut_off(victim), scene.bootstrap_begins_with(victim):
            told = _await_deposed(scene, victim)
            if dies_at == point:
                _replace_driver(scene, held)
            elif dies_at is not None:
                dies = scene.set(Trap(dies_at, KILL_DRIVER))
                scene.driver.traps.release(held)
                scene.await_sprung(dies)
                scene.dead()
                told = _how_stale(scene, told)
                scene.driver.start()
            else:
                scene.driver.traps.release(held)
            scene.run_on(1)
        scene.kafka.await_in_sync()
        return {**told, **scene.check_open()}

    return happen


_CUT_OFF_AT = (
    ("plan.begin", None),
    ("plan.fenced", "plan.fenced"),
    ("plan.swept", "commit.decided"),
    ("commit.checked", "commit.decided"),
    ("commit.checked", "commit.ending"),
    ("commit.deciding", None),
    ("commit.decided", "commit.decided"),
)


def _named(point, dies_at):
    killed = "" if dies_at is None else f", the driver killed at {dies_at}"
    return f"{_LOG} cut off at {point}{killed}"


CUT_OFF = [
    QueryFault("cut off", _named(point, dies_at), _cut_off(point, dies_at))
    for point, dies_at in _CUT_OFF_AT
]
