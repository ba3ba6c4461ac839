"""Every case through Spark, by this sink and by Spark's own as control."""

import pytest

from tests.security.cases import CASES, NOT_OF_JAVA
from tests.security.spark_writing import ROWS, ids_in, numbers, save

pytestmark = pytest.mark.long

WITH_JAVA = [case for case in CASES if not case.startswith(NOT_OF_JAVA)]


def let_java_call(spark, world, options):
    """Java's client calls no other URLs than those."""
    file = options.get("kafka.sasl.oauthbearer.token.endpoint.url", world.issuer.token_url)
    name = "org.apache.kafka.sasl.oauthbearer.allowed"
    system = spark._jvm.java.lang.System
    system.setProperty(f"{name}.urls", f"{world.issuer.token_url},{file}")
    assertion = options.get("kafka.sasl.oauthbearer.assertion.private.key.file", "")
    system.setProperty(f"{name}.files", f"{file.removeprefix('file://')},{assertion}")


@pytest.mark.parametrize("sink", ["pykafka-sink", "kafka"])
@pytest.mark.parametrize("case", WITH_JAVA)
def test_both_sinks_take_the_same_options(spark, world, new_topic, case, sink):
    topic, options = new_topic(), CASES[case](world)
    let_java_call(spark, world, options)
    save(numbers(spark), sink, topic, options)
    assert ids_in(world, topic) == list(range(ROWS))
