"""Plans a micro-batch or a batch write once, in a process of its own, as Spark has it done.

Arguments: ``stream``, ``batch`` or ``commit`` (of a stream), and the options as JSON. Standard output: ``planned``, or the
error in one line. Standard error: the driver's log.
"""

import json
import pickle
import sys

from pyspark.sql.types import StringType, StructField, StructType

from spark_kafka_sink.base.errors import KafkaSinkError
from spark_kafka_sink.spark.source import KafkaSinkDataSource

SCHEMA = StructType([StructField("value", StringType())])


def main():
    kind, options = sys.argv[1], json.loads(sys.argv[2])
    source = KafkaSinkDataSource(options)
    try:
        if kind == "stream":
            source.streamWriter(SCHEMA, False)
        elif kind == "commit":
            pickle.loads(pickle.dumps(source)).streamWriter(SCHEMA, False)
        else:
            source.writer(SCHEMA, False)
    except KafkaSinkError as error:
        print(f"{type(error).__name__}: {error}")
    else:
        print("planned")
    return 0


if __name__ == "__main__":
    sys.exit(main())
