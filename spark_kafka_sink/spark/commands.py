"""Commands in messages, completed so that they can be pasted and run.

The rooms below name the command and the prefix; which cluster it is about is known here.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager

from spark_kafka_sink.base.errors import KafkaSinkError
from spark_kafka_sink.base.model import format_address
from spark_kafka_sink.config.sink_keys import SINK_OPTIONS
from spark_kafka_sink.config.sink_options import SinkOptions

_COMMAND = r"(pykafka-sink transactions [a-z]+)"


def complete_commands(text: str, options: SinkOptions) -> str:
    """``text`` with address, prefix and decision log in each ``pykafka-sink transactions …``."""
    if options.exactly_once is None:
        return text
    servers = ",".join(format_address(*address) for address in options.producer.bootstrap_servers)
    prefix = options.exactly_once.prefix
    arguments = ["--bootstrap-server", servers, "--prefix", prefix]
    if options.exactly_once.log_topic != SINK_OPTIONS.keys["transaction.log.topic"].default:
        arguments += ["--log-topic", options.exactly_once.log_topic]
    command = rf"{_COMMAND}( --prefix {re.escape(prefix)})?"
    return re.sub(command, lambda match: f"{match[1]} {shlex.join(arguments)}", text)


@contextmanager
def completed_commands(options: SinkOptions) -> Iterator[None]:
    """Complete the commands in the message of an error that passes."""
    try:
        yield
    except KafkaSinkError as error:
        error.args = tuple(
            complete_commands(argument, options) if isinstance(argument, str) else argument
            for argument in error.args
        )
        raise
