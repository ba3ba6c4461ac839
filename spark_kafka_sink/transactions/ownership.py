"""Decide whether a driver may take a prefix: is this the query that owns it?

Spark's query ids decide if both are known; otherwise the locations of the checkpoints decide. A job
owns a prefix only for its own run.
"""

from __future__ import annotations

import logging
import posixpath
import shlex
from dataclasses import replace

from spark_kafka_sink.base.errors import warn
from spark_kafka_sink.config.sink_keys import ExactlyOnceConfig
from spark_kafka_sink.transactions.checkpoints import has_commits_at, qualified
from spark_kafka_sink.transactions.model import Decision, Driver, FencedError, PrefixInUseError

logger = logging.getLogger(__name__)

OPERATOR = "operator-"
"""Start of the driver id of an operator's command."""
_NEW_QUERY = "transaction.accept=new-query"


def claim(
    before: Decision | None, driver: Driver, is_query: bool, config: ExactlyOnceConfig
) -> Decision:
    """Return the record with ``driver`` as its owner.

    Raises FencedError for a superseded driver, PrefixInUseError if the prefix is another query's.
    """
    if before is None:
        return Decision(driver, is_query=is_query)
    owner, former = before.owner, before.former
    if owner.driver_id != driver.driver_id and driver.driver_id in before.superseded:
        raise FencedError(
            f"this {driver} was superseded by {owner.since()} under "
            f"transactional.id.prefix '{config.prefix}'. It stops; nothing that it has "
            "not decided becomes visible. It does not come back while its application runs, also "
            "if the other one has ended: start the query or job in a new application. In one "
            "application the data source is a driver, and "
            "spark_kafka_sink.write and batch_writer are another one: give each of the two a "
            "prefix of its own"
        )
    if not _is_querys(before):
        return before.claimed_by(driver, is_query)  # another job, or a query, may take it
    if not is_query:
        raise PrefixInUseError(_prefix_in_use(_owner(before), config.prefix))
    if _is_of(owner, before.owner_query_id, driver):
        return before.claimed_by(_completed(driver, owner), is_query)
    if former is not None and _is_of(former, before.unit.query_id or former.query_id, driver):
        returned = before.claimed_by(_completed(driver, former), is_query)
        return replace(returned, former=None)
    _check_new_query(before, driver, config)
    claimed = before.claimed_by(driver, is_query)
    if former is None:
        return replace(claimed, former=owner._replace(query_id=before.owner_query_id))
    # The owner is a new query, too, and has not decided anything.
    return claimed.retiring(owner)


def log_takeover(before: Decision | None, claimed: Decision, prefix: str) -> None:
    """Log that a query's prefix has another driver; warn if that may be another query's."""
    if before is None or not _is_querys(before):
        return
    former, now = before.owner, claimed.owner
    if former.driver_id == now.driver_id or former.driver_id.startswith(OPERATOR):
        return
    is_certain = None not in (before.owner_query_id, now.query_id) or _is_sibling(former, now)
    if is_certain:
        logger.info(f"{now} takes over transactional.id.prefix '{prefix}' from {former.since()}")
        return
    warn(
        logger,
        "TXN-039",
        f"{now} takes over transactional.id.prefix '{prefix}' from {former.since()}. Their query "
        "ids are not known yet, and the locations of their checkpoints may be one. After a restart "
        "of the query there is nothing to do. If these are two queries, one of them stops: give "
        "each a prefix of its own, and write the checkpoint's location with scheme and host",
    )


def _is_querys(decision: Decision) -> bool:
    return decision.is_query or decision.unit.query_id is not None


def _owner(decision: Decision) -> str:
    query_id = decision.owner_query_id
    return f"{'' if query_id is None else f'query {query_id}, '}{decision.owner}"


def _is_of(owner: Driver, query_id: str | None, driver: Driver) -> bool:
    """Return True if ``driver`` is of the query of ``owner``, as far as that is known."""
    if None not in (query_id, driver.query_id):
        if query_id == driver.query_id:
            return True
        # The owner may have read the same id while planning, from a folder that is not the
        # checkpoint. The commit compares Spark's id.
        if driver.query_id != owner.query_id:
            return False
    if owner.checkpoint is None or driver.checkpoint is None:
        return owner.checkpoint == driver.checkpoint
    return qualified(owner.checkpoint).is_same(qualified(driver.checkpoint))


def _completed(driver: Driver, owner: Driver) -> Driver:
    """Return ``driver`` with what only the owner's record says of the same checkpoint."""
    if owner.checkpoint is None or driver.checkpoint is None:
        # foreachBatch knows the query, and not its checkpoint.
        return driver._replace(checkpoint=driver.checkpoint or owner.checkpoint)
    ours, theirs = qualified(driver.checkpoint), qualified(owner.checkpoint)
    if not ours.is_same(theirs):
        return driver  # the checkpoint has moved, and its query id is known
    return driver._replace(checkpoint=str(ours.completed_by(theirs)))


# --- a new query in place of another -------------------------------------------------------------


def _check_new_query(before: Decision, driver: Driver, config: ExactlyOnceConfig) -> None:
    """Raise PrefixInUseError unless ``driver`` is of a new query that may replace the owner's."""
    is_sibling = _is_sibling(before.owner, driver)
    if not (config.accepts_new_query and is_sibling):
        is_other = None not in (before.owner_query_id, driver.query_id)
        by = f"{_owner(before)}{_doubts(before.owner, driver, config)}"
        advice = _prefix_in_use(by, config.prefix, driver, is_other, is_sibling)
        raise PrefixInUseError(advice)
    checkpoint = qualified(str(driver.checkpoint))
    is_replaced = any(qualified(retired).is_same(checkpoint) for retired in before.retired)
    if is_replaced or _is_earlier(driver, before.owner):
        raise PrefixInUseError(
            f"transactional.id.prefix '{config.prefix}' belongs to {_owner(before)}, which is "
            f"later than the query of checkpoint {checkpoint}, and {_NEW_QUERY} is for a new "
            "query. Start the query with the newest checkpoint"
        )
    if has_commits_at(checkpoint):
        raise not_new(f"the query of checkpoint {checkpoint}", config.prefix)


def _doubts(owner: Driver, driver: Driver, config: ExactlyOnceConfig) -> str:
    """Return what may be wrong with the location or the option of a query that is refused."""
    if config.accepts_new_query:
        return (
            f" ({_NEW_QUERY} is for a query of the same name, with another checkpoint in the same "
            "folder)"
        )
    if None in (owner.checkpoint, driver.checkpoint, driver.query_id):
        return ""
    ours = qualified(str(driver.checkpoint))
    if ours.scheme is not None or not ours.is_same(qualified(str(owner.checkpoint))):
        return ""
    return (
        f" (this query is {driver.query_id} by {ours.path}/metadata on {driver.host}: if its "
        "checkpoint is not there, write scheme and host in checkpointLocation)"
    )


def _is_earlier(driver: Driver, owner: Driver) -> bool:
    """Return True if a pipeline has numbered the driver's checkpoint before the owner's.

    Its query may have ended before the record named it.
    """
    ours, theirs = (posixpath.basename(qualified(str(d.checkpoint)).path) for d in (driver, owner))
    return ours.isdecimal() and theirs.isdecimal() and int(ours) < int(theirs)


def _is_sibling(owner: Driver, driver: Driver) -> bool:
    """Return True if both have one name, and each another checkpoint in the same folder."""
    is_named = not owner.driver_id.startswith(OPERATOR)  # a command has no name of the query
    if is_named and owner.query_name != driver.query_name:
        return False
    if owner.checkpoint is None or driver.checkpoint is None:
        return False
    ours, theirs = qualified(driver.checkpoint), qualified(owner.checkpoint)
    return not ours.is_same(theirs) and ours.parent.is_same(theirs.parent)


def not_new(what: str, prefix: str) -> PrefixInUseError:
    """Return the error for a micro-batch, or a query, that must not replace another query's."""
    return PrefixInUseError(
        f"transactional.id.prefix '{prefix}' belongs to another query, and {what} is not new: "
        f"{_NEW_QUERY} is valid only for a query's micro-batch 0. Give this query a prefix of its "
        "own; if the other one is gone for good: pykafka-sink transactions release "
        f"--prefix {prefix}"
    )


def _prefix_in_use(
    by: str,
    prefix: str,
    driver: Driver | None = None,
    is_other: bool = True,
    is_sibling: bool = False,
) -> str:
    """Describe what a query or job that is refused can do.

    is_other: it is another query for certain
    is_sibling: as ``_is_sibling`` says
    """
    text = (
        f"transactional.id.prefix '{prefix}' belongs to {by}. Give this query or job a prefix of "
        "its own; "
    )
    checkpoint = None if driver is None else driver.checkpoint
    is_numbered = is_sibling and posixpath.basename(str(checkpoint)).isdecimal()
    if is_sibling:
        text += (
            "if this is a new query in its place, as a full refresh of a pipeline makes it: "
            f"option {_NEW_QUERY}, for its micro-batch 0; "
        )
    # A pipeline numbers the checkpoints of its full refreshes: those are other queries.
    if not is_other and not is_numbered:
        location = "LOCATION" if checkpoint is None else shlex.quote(checkpoint)
        text += (
            "if it is the same query, and its checkpoint has another location now: "
            f"pykafka-sink transactions rebind --prefix {prefix} --checkpoint {location}; "
        )
    return (
        f"{text}if the other one is gone for good, or its checkpoint was deleted on purpose: "
        f"pykafka-sink transactions release --prefix {prefix}"
    )


def owned_by_query(query_id: str, prefix: str) -> PrefixInUseError:
    """Return the error for a micro-batch of another query than the record's."""
    return PrefixInUseError(_prefix_in_use(f"query {query_id}", prefix))
