"""The answers of the only replica are lost, and it restarts: it remembers one batch of a producer."""

import pytest

from spark_kafka_sink.base.errors import DeliveryError
from tests.broker.producing import Topics, append, producer_for
from tests.local_kafka import PatientKafka
from tests.patience import NO_OTHER_TIMEOUT, eventually
from tests.proxy import TcpProxy
from tests.reading import read_values

FORWARDED = "FORWARDED"
FIRST, LATER = b"first", [letter * 1000 for letter in (b"a", b"b", b"c")]
BATCH_EACH = {"batch_size": "1000", "linger_ms": "0"}


class Forwarded(PatientKafka):
    """One broker, which clients of ``forwarder`` know by its address alone."""

    def __init__(self, **options):
        self.forwarder = TcpProxy(lambda: self.address(1, FORWARDED))
        advertised = {FORWARDED: [self.forwarder.address]}
        super().__init__(listeners={FORWARDED: "PLAINTEXT"}, advertised=advertised, **options)

    def close(self):
        self.forwarder.close()
        super().close()

    def append_and_restart(self, producer, topic, end):
        """Append ``LATER`` to ``topic``, lose all answers, and ``end`` the broker; it is back."""
        with self.forwarder.answers_held_back():
            for value in LATER:
                append(producer, topic, [value])
            topics = Topics(self.bootstrap_servers)
            assert eventually(lambda: topics.records_count(topic) == 1 + len(LATER))
            end(self)
            self.restart(1)
            self.forwarder.cut()


@pytest.fixture(scope="module")
def forwarded():
    with Forwarded() as kafka:
        yield kafka


@pytest.fixture
def write(forwarded):
    """Write ``FIRST`` and ``LATER`` to a topic whose broker ends meanwhile."""

    def write(topic, end, **options):
        forwarded.create_topic(topic, 1, 1)
        address = forwarded.forwarder.address
        with producer_for(address, **BATCH_EACH, **NO_OTHER_TIMEOUT, **options) as producer:
            append(producer, topic, [FIRST])
            producer.flush()
            forwarded.append_and_restart(producer, topic, end)
            producer.flush()

    return write


@pytest.mark.parametrize(
    "end", [lambda kafka: kafka.stop(1), lambda kafka: kafka.kill(1)], ids=["stopped", "killed"]
)
def test_what_the_broker_no_longer_knows_is_not_written_again(forwarded, write, end, request):
    topic = request.node.callspec.id
    with pytest.raises(DeliveryError) as raised:
        write(topic, end)
    assert raised.value.code == "DELIVERY-008"
    assert "sequences 1 to 3" in str(raised.value)
    assert read_values(forwarded.bootstrap_servers, topic) == [FIRST, *LATER]
