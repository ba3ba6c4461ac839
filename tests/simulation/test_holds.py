"""What a limit or a pause holds is not late, whatever happens to it meanwhile."""

from __future__ import annotations

from typing import Any

from spark_kafka_sink.config.limits import LimitConfig
from spark_kafka_sink.protocol.messages.produce import ProduceRequest
from tests.simulation.limited import PAUSE_PATH, LimitedQuery, expected
from tests.simulation.refusing import Refusal, refusing

MB = 1_000_000
IMPATIENT = {"delivery_timeout_ms": "3000", "request_timeout_ms": "2000", "linger_ms": "0"}
SMALL = {"buffer_memory": "262144", "max_block_ms": "1000", "batch_size": "16384"}


def query_of(limits: LimitConfig, **options: Any) -> LimitedQuery:
    """Of one partition, so that it is known whose leader moves."""
    return LimitedQuery(limits, partitions=1, **{**IMPATIENT, **SMALL, **options})


def test_what_was_put_back_behind_a_refused_batch_is_held() -> None:
    """Not an attempt: nothing waits before it is sent again."""
    query = query_of(LimitConfig(100 * MB, None, PAUSE_PATH))
    refuse = refusing(lambda topic, record: int(record.value[5:12]) == 20)
    refused: list[Refusal] = []

    def validate(topic: str, batch: Any) -> Refusal | None:
        refusal = refuse(topic, batch)
        if refusal is not None:
            refused.append(refusal)
        elif refused and not query.server.held and len(refused) == 1:
            refused.append(refused[0])
            query.server.held = True
            query.world.scheduler.after(20_000, lambda: setattr(query.server, "held", False))
        return refusal

    handle = query.cluster.handle

    def slowly(broker: Any, request: Any, version: int, reply: Any) -> None:
        pause_ms = 30 if isinstance(request, ProduceRequest) else 0
        query.world.scheduler.after(pause_ms, lambda: handle(broker, request, version, reply))

    query.cluster.handle = slowly  # type: ignore[method-assign]
    query.cluster.on_validate = validate
    query.start(0, 200, lambda task: task.refusals.tolerate(None))
    assert query.run() >= 20_000
    assert set(query.values()) == set(expected(0, 200)) - {b"0000-0000020"}
