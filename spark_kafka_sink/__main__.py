"""``python -m spark_kafka_sink``: the same as the command ``pykafka-sink``."""

import sys

from spark_kafka_sink.cli import main

if __name__ == "__main__":
    sys.exit(main())
