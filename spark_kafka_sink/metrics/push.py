"""One request to a collector or a push gateway, whose answer is neither long nor late.

An answer usually has a few hundred bytes. The longest legitimate one lists the data points that a
collector rejects. Its words go into the log, without the request's credentials.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from http.client import HTTPException
from typing import NamedTuple
from urllib.parse import SplitResult

from spark_kafka_sink.base.clock import SystemClock
from spark_kafka_sink.base.http import Limits, Request, Response, exchange
from spark_kafka_sink.base.text import redacted

MOST_ANSWER_BYTES = 1024 * 1024


class Push(NamedTuple):
    """A request. option: the URL's option, for errors"""

    url: SplitResult
    method: str
    headers: Mapping[str, str]
    body: bytes
    option: str


def send(push: Push, context: ssl.SSLContext | None, timeout_s: float) -> Response:
    """Return the answer to ``push``, all of which may take ``timeout_s``.

    context: for https

    Raises what ``exchange`` raises; ``problem_of_error`` puts it into words.
    """
    request = Request(
        push.url, push.headers, push.body, push.method, push.option, MOST_ANSWER_BYTES
    )
    timeout_ms = round(1000 * timeout_s)
    return exchange(request, context, Limits(*[timeout_ms] * 3), SystemClock())


def problem_of_answer(answer: Response) -> str | None:
    """Return the problem that the status or the size of the answer shows; None without one."""
    if answer.status >= 300:
        return redacted(f"HTTP {answer.status} {answer.reason}".strip())
    if not answer.is_whole:
        return f"HTTP {answer.status} with more than {MOST_ANSWER_BYTES:,} bytes"
    return None


def problem_of_error(error: BaseException) -> str:
    """Return the problem in words: of the operating system, if it has any."""
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, HTTPException):  # its text quotes the answer
        return f"what answers does not speak HTTP ({type(error).__name__})"
    return redacted(getattr(error, "strerror", None) or str(error) or type(error).__name__)
