"""Each kind of listener once: what clients find on the brokers of the tests."""

from spark_kafka_sink.base.machine import write_private
from spark_kafka_sink.localkafka import LocalSecurity

# A password with everything that has to be escaped somewhere.
SECRETS = {"alice": 'Sp"ec,=i\\al ü; #1', "bob": "a plain password"}
"""Passwords by user. alice may do everything, bob what ACLs allow him."""

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")


def listeners_of(authority, oauth, folder):
    """By name. ``folder``: where the stores of those that are wrong are written."""

    def tls(**changed):
        return LocalSecurity("SSL", users=SECRETS, authority=authority, **changed)

    def sasl(protocol, *mechanisms):
        return LocalSecurity(protocol, mechanisms, SECRETS, authority=authority, oauth=oauth)

    def broker(name, identity):
        path = write_private(folder / f"{name}.pem", identity.pem())
        return {"ssl.keystore.location": str(path)}

    version_12 = {"ssl.enabled.protocols": "TLSv1.2", "ssl.protocol": "TLSv1.2"}
    wrong_host = authority.issue("broker", ["kafka.example"])
    return {
        "SASL": sasl("SASL_PLAINTEXT", *MECHANISMS),
        "SASL_TLS": sasl("SASL_SSL", *MECHANISMS),
        "TLS_RSA": tls(key_type="RSA"),
        "TLS_EC": tls(key_type="EC"),
        "TLS_12": tls(key_type="RSA", properties=version_12),
        "TLS_13": tls(key_type="RSA", properties={"ssl.enabled.protocols": "TLSv1.3"}),
        "MUTUAL_RSA": tls(key_type="RSA", client_auth="required"),
        "MUTUAL_EC": tls(key_type="EC", client_auth="required"),
        "MUTUAL_12": tls(key_type="EC", client_auth="required", properties=version_12),
        "WRONG_HOST": tls(properties=broker("wrong-host", wrong_host)),
        "PLAIN_ONLY": sasl("SASL_PLAINTEXT", "PLAIN"),
    }
