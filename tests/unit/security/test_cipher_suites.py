"""IANA's names, OpenSSL's, and what a list of them leaves."""

import logging
import shutil
import ssl
import subprocess

import pytest

from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.config.security_config import SslConfig
from spark_kafka_sink.security.tls import (
    OPENSSL_NAMES,
    TLS_1_3_SUITES,
    SuitesByVersion,
    TlsVersions,
    suites_by_version,
    versions_of,
)

OPTION = "kafka.ssl.cipher.suites"
RSA, CHACHA = "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"
FIXED = "TLS_ECDH_RSA_WITH_AES_256_GCM_SHA384"
V1_2, V1_3 = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_the_names_are_openssls():
    command = ["openssl", "ciphers", "-stdname", "ALL:COMPLEMENTOFALL:@SECLEVEL=0"]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    pairs = {line.split()[0]: line.split()[2] for line in lines}
    assert {iana: pairs.get(iana, openssl) for iana, openssl in OPENSSL_NAMES.items()} == (
        OPENSSL_NAMES
    )
    assert set(TLS_1_3_SUITES) <= set(pairs)


def test_each_name_is_a_cipher_that_can_be_set():
    """Nearly all: builds of OpenSSL may lack some; those of each day are there in any."""
    for name in [n for n in OPENSSL_NAMES if "ECDHE" in n and "GCM" in n and "ARIA" not in n]:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        versions_of(SslConfig(cipher_suites=(name,)), "kafka.").apply(context, OPTION)
        set_names = {cipher["name"] for cipher in context.get_ciphers()} - set(TLS_1_3_SUITES)
        assert set_names == {OPENSSL_NAMES[name]}


def test_names_by_version_in_their_order():
    found = suites_by_version((CHACHA, RSA, "TLS_EMPTY_RENEGOTIATION_INFO_SCSV", FIXED), OPTION)
    assert found == SuitesByVersion(("ECDHE-RSA-AES256-GCM-SHA384",), (CHACHA,), (FIXED,))
    assert suites_by_version((), OPTION) == SuitesByVersion((), (), ())


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA348", f"Did you mean {RSA}?"),
        ("ECDHE-RSA-AES256-GCM-SHA384", f"by IANA's names, which Kafka uses: that is {RSA}"),
        ("tls_chacha20_poly1305_sha256", f"Did you mean {CHACHA}?"),
        ("SSL_ECDHE_RSA_WITH_AES_256_GCM_SHA384", f"Did you mean {RSA}?"),
        ("HIGH", "HIGH is not a cipher suite"),
    ],
)
def test_a_name_of_no_suite_is_answered_with_the_nearest(name, message):
    with pytest.raises(ConfigError) as raised:
        suites_by_version((RSA, name), OPTION)
    assert str(raised.value).startswith(f"{OPTION}: {name} is not a cipher suite")
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("suites", "lowest", "highest"),
    [
        ((), V1_2, V1_3),
        ((RSA,), V1_2, V1_2),
        ((CHACHA,), V1_3, V1_3),
        ((RSA, CHACHA), V1_2, V1_3),
    ],
)
def test_a_version_without_a_suite_is_not_spoken(suites, lowest, highest):
    found = versions_of(SslConfig(cipher_suites=suites), "kafka.")
    assert found[:2] == (lowest, highest)


def test_suites_of_a_version_that_is_not_spoken_have_no_effect(caplog):
    found = versions_of(SslConfig(protocol="TLSv1.2", cipher_suites=(RSA, CHACHA)), "kafka.")
    assert found == (V1_2, V1_2, (OPENSSL_NAMES[RSA],), ())
    assert caplog.records == []


@pytest.mark.parametrize("name", ["TLS_AES_128_CCM_SHA256", "TLS_AES_128_CCM_8_SHA256"])
def test_suites_of_tls_1_3_that_openssl_does_not_offer_by_itself(name):
    assert suites_by_version((name,), OPTION) == SuitesByVersion((), (name,), ())


def test_suites_of_tls_1_3_are_set_where_python_can():
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    versions_of(SslConfig(cipher_suites=(CHACHA,)), "kafka.").apply(context, OPTION)
    found = {cipher["name"] for cipher in context.get_ciphers()} & set(TLS_1_3_SUITES)
    can_choose = hasattr(context, "set_ciphersuites")
    assert found == ({CHACHA} if can_choose else set(TLS_1_3_SUITES))


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            SslConfig(enabled_protocols=("TLSv1.3",), cipher_suites=(RSA,)),
            "has no cipher suite of TLSv1.3, which is all that kafka.ssl.protocol and",
        ),
        (
            SslConfig(protocol="TLSv1.2", cipher_suites=(CHACHA,)),
            "has no cipher suite of TLSv1.2",
        ),
        (SslConfig(cipher_suites=(FIXED,)), "OpenSSL has none of these cipher suites"),
    ],
)
def test_a_list_that_leaves_nothing(config, message):
    with pytest.raises(ConfigError, match=message):
        versions_of(config, "kafka.")


def test_suites_that_this_machines_openssl_lacks():
    versions = TlsVersions(V1_2, V1_2, ("OF-ANOTHER-BUILD",), ())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    with pytest.raises(ConfigError, match=f"{OPTION}: this machine's OpenSSL .* has none of"):
        versions.apply(context, OPTION)


def test_what_a_list_does_not_do_is_told(caplog):
    with caplog.at_level(logging.WARNING, "spark_kafka_sink"):
        versions_of(SslConfig(cipher_suites=TLS_1_3_SUITES), "kafka.")
        assert caplog.records == []
        versions_of(SslConfig(cipher_suites=(CHACHA, RSA, FIXED)), "kafka.")
    texts = [record.getMessage() for record in caplog.records]
    assert f"{OPTION}: OpenSSL does not have {FIXED}" in texts[0]
    can_choose = hasattr(ssl.SSLContext, "set_ciphersuites")
    assert can_choose or "cannot choose among the cipher suites of TLS 1.3" in texts[1]
