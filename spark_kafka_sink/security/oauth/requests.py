"""What is asked of a token endpoint: the form and the headers of each grant.

Source: ``ClientSecretRequestFormatter``, ``ClientAssertionRequestFormatter``,
``JwtBearerRequestFormatter`` of Kafka; RFC 6749, RFC 7523.
"""

from __future__ import annotations

import base64
from urllib.parse import quote_plus

from spark_kafka_sink.base.errors import AuthenticationError
from spark_kafka_sink.base.secret import Secret
from spark_kafka_sink.security.mechanisms.text import utf8
from spark_kafka_sink.security.oauth.choice import Client
from spark_kafka_sink.security.oauth.endpoint import TokenRequest

JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"
CLIENT_ASSERTION = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"


def secret_request(client: Client, header_urlencode: bool) -> TokenRequest:
    """client_credentials with id and secret in the Authorization header."""
    if client.id is None or client.secret is None:
        raise AuthenticationError("the client's id and secret are needed for client credentials")
    name, secret = client.id, client.secret.reveal()
    utf8(name, "the client's id")
    utf8(secret, "the client's secret")
    pair = f"{_encoded(name)}:{_encoded(secret)}" if header_urlencode else f"{name}:{secret}"
    basic = base64.b64encode(utf8(pair, "the client's secret")).decode("ascii")
    form = "grant_type=client_credentials" + _scope(client)
    return TokenRequest(
        form, {"Authorization": f"Basic {basic}"}, (secret, _encoded(secret), basic)
    )


def assertion_request(client: Client, assertion: Secret) -> TokenRequest:
    """client_credentials with a signed assertion in place of the secret."""
    text = assertion.reveal()
    form = (
        f"client_assertion_type={_encoded(CLIENT_ASSERTION)}&client_assertion={_encoded(text)}"
        "&grant_type=client_credentials"
    )
    if client.id is not None:
        form += f"&client_id={_encoded(client.id)}"
    return TokenRequest(form + _scope(client), {}, (text,))


def jwt_bearer_request(client: Client, assertion: Secret) -> TokenRequest:
    """jwt-bearer: the assertion is what is granted for."""
    text = assertion.reveal()
    form = f"grant_type={_encoded(JWT_BEARER)}&assertion={_encoded(text)}"
    return TokenRequest(form + _scope(client), {}, (text,))


def _scope(client: Client) -> str:
    return "" if client.scope is None else f"&scope={_encoded(client.scope)}"


def _encoded(text: str) -> str:
    """As Java's ``URLEncoder``: a blank becomes +, and * stays."""
    return quote_plus(text, safe="*", errors="surrogateescape").replace("~", "%7E")
