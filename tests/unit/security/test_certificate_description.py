"""Certificates in messages."""

from datetime import timedelta

from cryptography.hazmat.primitives.serialization import Encoding

from spark_kafka_sink.localkafka.certificates import Authority
from spark_kafka_sink.security.pkcs12 import describe_certificate

CERTIFICATE = Authority("the authority").issue("alice").certificate
DER = CERTIFICATE.public_bytes(Encoding.DER)
BEGIN, END = CERTIFICATE.not_valid_before_utc, CERTIFICATE.not_valid_after_utc
SECOND = timedelta(seconds=1)


def at(moment):
    return describe_certificate(DER, int(moment.timestamp() * 1000))


def test_whose_it_is_and_until_when():
    who = "CN=alice, signed by CN=the authority, "
    assert at(BEGIN - SECOND) == f"{who}which is not valid before {BEGIN:%Y-%m-%d}"
    assert at(BEGIN) == at(END) == f"{who}valid until {END:%Y-%m-%d}"
    assert at(END + SECOND) == f"{who}which has expired on {END:%Y-%m-%d}"


def test_what_cannot_be_read_is_said_to_be_so():
    assert describe_certificate(b"no certificate", 0) == "which cannot be read"
