"""A registry for each test, and a folder of its own for what it has answered."""

import pytest

from spark_kafka_sink.base import machine
from tests.unit.registry.server import fresh_registry


@pytest.fixture
def registry():
    with fresh_registry() as made:
        yield made


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(machine.tempfile, "gettempdir", lambda: str(tmp_path))
    return machine.private_folder("registry")
