"""Small files that tokens are made of: read when they are needed, never kept."""

from __future__ import annotations

from spark_kafka_sink.base.errors import AuthenticationError, ConfigError
from spark_kafka_sink.security.locations import locate

MOST_BYTES = 1_000_000


def read_text(location: str, option: str) -> str:
    """The text of a file. ``option``: names it in errors. Raises AuthenticationError."""
    try:
        with locate(location, option).open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except ConfigError as error:
        raise AuthenticationError(str(error)) from None
    except OSError as error:
        raise AuthenticationError(
            f"{option}: {location} cannot be read: {error.strerror or type(error).__name__}. It "
            "must be there on every machine that runs the driver or a task"
        ) from None
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        text = ""
    if len(data) > MOST_BYTES or not text.strip():
        raise AuthenticationError(
            f"{option}: {location} must hold text in UTF-8, and {MOST_BYTES} bytes at most"
        )
    return text
