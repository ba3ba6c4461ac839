"""What a connection and its broker talk about, from the first request on: a table.

Source: ``SaslClientAuthenticator.SaslState``; KIP-43, KIP-152, KIP-368.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import NamedTuple

from spark_kafka_sink.base.errors import LocalProtocolError


class Stage(Enum):
    """What is being talked about. Only READY takes requests that are not the connection's own."""

    NEW = auto()
    CHECKING_API_VERSIONS = auto()
    CHOOSING_MECHANISM = auto()
    AUTHENTICATING = auto()
    READY = auto()
    CHOOSING_MECHANISM_AGAIN = auto()
    AUTHENTICATING_AGAIN = auto()


class Step(Enum):
    """What the connection does next: three requests of its own, or nothing more."""

    ASK_VERSIONS = auto()
    CHOOSE_MECHANISM = auto()
    AUTHENTICATE = auto()
    FINISH = auto()


class StageChange(NamedTuple):
    """In ``stage`` ``step`` leads to ``next_stage``, because of ``reason``."""

    stage: Stage
    step: Step
    next_stage: Stage
    reason: str


_S, _T = Stage, Step
STAGE_CHANGES = (
    StageChange(
        _S.NEW, _T.ASK_VERSIONS, _S.CHECKING_API_VERSIONS, "answered before authentication, too"
    ),
    StageChange(
        _S.CHECKING_API_VERSIONS,
        _T.ASK_VERSIONS,
        _S.CHECKING_API_VERSIONS,
        "the broker does not know the version it was asked in",
    ),
    StageChange(
        _S.CHECKING_API_VERSIONS, _T.FINISH, _S.READY, "nobody has to be authenticated by SASL"
    ),
    StageChange(
        _S.CHECKING_API_VERSIONS,
        _T.CHOOSE_MECHANISM,
        _S.CHOOSING_MECHANISM,
        "until SASL is done the broker ends the connection at any other request",
    ),
    StageChange(
        _S.CHOOSING_MECHANISM, _T.AUTHENTICATE, _S.AUTHENTICATING, "the broker has the mechanism"
    ),
    StageChange(
        _S.AUTHENTICATING, _T.AUTHENTICATE, _S.AUTHENTICATING, "the broker's message has an answer"
    ),
    StageChange(_S.AUTHENTICATING, _T.FINISH, _S.READY, "there is nothing more to be said"),
    StageChange(
        _S.READY,
        _T.CHOOSE_MECHANISM,
        _S.CHOOSING_MECHANISM_AGAIN,
        "the session ends soon; earlier requests may still be answered (KIP-368)",
    ),
    StageChange(
        _S.CHOOSING_MECHANISM_AGAIN,
        _T.AUTHENTICATE,
        _S.AUTHENTICATING_AGAIN,
        "the broker has the mechanism",
    ),
    StageChange(
        _S.AUTHENTICATING_AGAIN,
        _T.AUTHENTICATE,
        _S.AUTHENTICATING_AGAIN,
        "the broker's message has an answer",
    ),
    StageChange(_S.AUTHENTICATING_AGAIN, _T.FINISH, _S.READY, "there is nothing more to be said"),
)
_NEXT = {(stage, step): next_stage for stage, step, next_stage, _ in STAGE_CHANGES}


def stage_after(stage: Stage, step: Step) -> Stage:
    """Raises LocalProtocolError where nothing follows: this side made a mistake."""
    next_stage = _NEXT.get((stage, step))
    if next_stage is None:
        raise LocalProtocolError(f"{step.name} while {stage.name}")
    return next_stage
