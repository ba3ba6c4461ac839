"""Fixtures that several folders of tests use."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from spark_kafka_sink.localkafka import LocalKafka


@pytest.fixture(scope="session")
def kafka() -> Iterator[LocalKafka]:
    """One real broker for the whole session. Do not stop it; give topics names of your own."""
    with LocalKafka() as local_kafka:
        yield local_kafka


@pytest.fixture(scope="session")
def strict_kafka() -> Iterator[LocalKafka]:
    """A real broker that does not create topics by itself."""
    with LocalKafka(server_properties={"auto.create.topics.enable": "false"}) as local_kafka:
        yield local_kafka
