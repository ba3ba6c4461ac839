"""What chaos and scale runs are judged by must find what it looks for."""

from confluent_kafka import Producer

from tests.chaos.verdict import Verdict, judge


def judged(kafka, topic, ids, records):
    kafka.create_topic(topic)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for number in ids:
        producer.produce(topic, b"%010d" % number + b"x" * 90, b"key")
    assert producer.flush(30) == 0
    return judge(kafka.bootstrap_servers, topic, 1, records)


def test_all_well(kafka):
    verdict = judged(kafka, "verdict-good", [0, 1, 2, 3], 4)
    assert verdict == Verdict(read=4, lost=0, doubled=0, out_of_order=0)
    assert verdict.is_good


def test_lost_doubled_and_out_of_order_are_counted(kafka):
    verdict = judged(kafka, "verdict-bad", [0, 2, 1, 2, 2], 5)
    assert verdict == Verdict(read=5, lost=2, doubled=2, out_of_order=1)
    assert not verdict.is_good
