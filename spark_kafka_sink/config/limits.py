"""How fast a query may write, and whether it is held: the options of limits and pauses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from spark_kafka_sink.base.dataclass import dataclass
from spark_kafka_sink.base.secret import Secret
from spark_kafka_sink.config.config_def import (
    ConfigKey,
    ConfigType,
    Importance,
    at_least,
    between,
    non_empty,
)

MAX_BYTES = "max.bytes.per.second"
MAX_RECORDS = "max.records.per.second"
PAUSE_PATH = "pause.path"
SERVER_HOST = "limit.server.host"
SERVER_PORT = "limit.server.port"
_HIGHEST_PORT = 65535

LIMIT_KEYS = (
    ConfigKey(
        MAX_BYTES,
        ConfigType.LONG,
        None,
        at_least(1),
        Importance.MEDIUM,
        "How many bytes of record batches, as they are sent, all tasks of the query together send "
        "in a second: docs/limits.md. By default there is no limit.",
    ),
    ConfigKey(
        MAX_RECORDS,
        ConfigType.LONG,
        None,
        at_least(1),
        Importance.MEDIUM,
        "The same for records.",
    ),
    ConfigKey(
        PAUSE_PATH,
        ConfigType.STRING,
        None,
        non_empty,
        Importance.LOW,
        "File on the driver that holds the query as long as it exists: tasks send nothing and do "
        "not fail. With exactly-once, a micro-batch that has begun to send is written to its end.",
    ),
    ConfigKey(
        SERVER_HOST,
        ConfigType.STRING,
        None,
        non_empty,
        Importance.LOW,
        "Name or address at which executors reach the driver, for the options above. By default "
        "the address from which the driver reaches kafka.bootstrap.servers.",
    ),
    ConfigKey(
        SERVER_PORT,
        ConfigType.INT,
        0,
        between(0, _HIGHEST_PORT),
        Importance.LOW,
        "Port of the driver at which tasks ask how long to wait, for firewalls. 0: any that is "
        "free. Each driver of a machine needs one of its own.",
    ),
)


@dataclass(frozen=True, slots=True)
class LimitConfig:
    """bytes_per_second, records_per_second: None where there is no limit

    pause_path: of a file on the driver, None where nothing holds the query
    server_host: as executors know the driver; None to find out. server_port: 0 for any
    """

    bytes_per_second: int | None
    records_per_second: int | None
    pause_path: str | None
    server_host: str | None = None
    server_port: int = 0

    @property
    def has_rate(self) -> bool:
        """Whether there is more than a pause."""
        return self.bytes_per_second is not None or self.records_per_second is not None

    @property
    def rates(self) -> str:
        """Options and values, for messages."""
        given = {MAX_BYTES: self.bytes_per_second, MAX_RECORDS: self.records_per_second}
        return " and ".join(f"{name} = {value}" for name, value in given.items() if value)


@dataclass(frozen=True, slots=True)
class LimitAccess:
    """What a task needs to keep to the limit of its query.

    query: tells the driver's queries apart
    host, port: where the driver's limit server listens. token: the right to ask it
    """

    limits: LimitConfig
    query: str
    host: str
    port: int
    token: Secret


def limits_of(sink: Mapping[str, Any]) -> LimitConfig | None:
    """From the parsed table of the sink's options; None where nothing is limited."""
    limits = LimitConfig(
        sink["max_bytes_per_second"],
        sink["max_records_per_second"],
        sink["pause_path"],
        sink["limit_server_host"],
        sink["limit_server_port"],
    )
    return limits if limits.has_rate or limits.pause_path is not None else None


def notes_on_limits(
    limits: LimitConfig | None, batch_size: int, own: Iterable[str]
) -> Iterator[str]:
    """Sentences about options without effect, and limits that are kept and hardly meant.

    batch_size: bytes; own: names that were given
    """
    if limits is None:
        for name in own:
            if name in (SERVER_HOST, SERVER_PORT):
                yield (
                    f"option '{name}' has no effect without {MAX_BYTES}, {MAX_RECORDS} or "
                    f"{PAUSE_PATH}"
                )
    most = None if limits is None else limits.bytes_per_second
    if most is not None and most < batch_size:
        yield (
            f"{MAX_BYTES} = {most} is less than kafka.batch.size = {batch_size}: a batch that is "
            "full waits for longer than a second. If the limit is meant, set kafka.batch.size to "
            "less than it"
        )
