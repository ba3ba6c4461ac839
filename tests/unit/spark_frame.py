"""A DataFrame that Spark has nothing to do with, for writes without a data source."""

import inspect

from pyspark.sql.types import BinaryType, StructField, StructType

from spark_kafka_sink.spark.commit import KafkaCommitMessage, encode_message

OPTIONS = {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t"}
EXACTLY_ONCE = {**OPTIONS, "delivery.guarantee": "Exactly-Once", "transactional.id.prefix": "p"}
ONE_COLUMN = StructType([StructField("value", BinaryType())])


class Frame:
    """A DataFrame of which Spark has run these partitions. It is none of Spark Connect."""

    schema = ONE_COLUMN
    isStreaming = False  # noqa: N815
    applicationId = "local-1"  # noqa: N815

    def __init__(self, partitions, query=None, call=0):
        self.partitions = partitions
        self.properties = {"spark.jobGroup.id": "the user's own"}
        if query is not None:
            self.properties["sql.streaming.queryId"] = query
            self.properties["spark.sql.execution.id"] = str(call)
        self.sparkSession = self
        self.sparkContext = self

    def getLocalProperty(self, name):  # noqa: N802
        return self.properties.get(name)

    def toDF(self, *names):  # noqa: N802
        assert len(names) == len(self.schema.fields)
        return self

    def mapInArrow(self, task, schema):  # noqa: N802
        assert schema == "message binary"
        self.plan = inspect.getclosurevars(task).nonlocals["self"]._plan
        return self

    def collect(self):
        messages = [KafkaCommitMessage(partition, 0) for partition in self.partitions]
        for message in messages:
            if self.plan is not None:
                message.belong_to(self.plan)
        return [(bytearray(encode_message(message)),) for message in messages]
