"""Files with the descriptors of Protobuf messages, as options name them: read on the driver."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.config.formats import PartOptions
from spark_kafka_sink.formats.plan import FormatError
from spark_kafka_sink.formats.protobuf_descriptors import (
    DescribedMessage,
    check_installed,
    read_descriptor_set,
)


def described(options: PartOptions) -> DescribedMessage:
    """The message of ``protobuf.message`` in ``protobuf.descriptor.file``.

    Raises ConfigError for a file that cannot be read, or without Protobuf's package; FormatError
    for one that is no descriptor set, or has no such message.
    """
    assert options.descriptor_file is not None
    assert options.message is not None
    check_installed(f"{options.part}.format")
    name = f"{options.part}.protobuf.descriptor.file={options.descriptor_file}"
    try:
        data = Path(options.descriptor_file).read_bytes()
    except OSError as error:
        raise ConfigError(f"{name}: it cannot be read on the driver: {error}") from None
    try:
        return _read(data, options.message)
    except FormatError as error:
        raise FormatError(f"{name}: {error}") from None


# Streams are planned again and again.
_read = lru_cache(maxsize=20)(read_descriptor_set)
