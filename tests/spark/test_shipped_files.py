"""Files that Spark ships are found by their names, on the driver and in tasks."""

import pytest
from pyspark.sql.datasource import DataSource, DataSourceReader

from spark_kafka_sink.security.references import find_file, process_description

pytestmark = pytest.mark.slow
NAME = "shipped-to-everywhere.pem"
OPTION = "kafka.ssl.truststore.location"


class WhereFilesAre(DataSource):
    """Its rows: who looks, and what is in the file that was found."""

    @classmethod
    def name(cls):
        return "where-files-are"

    def schema(self):
        return "place string, content string"

    def reader(self, schema):
        return Reader(found())


class Reader(DataSourceReader):
    def __init__(self, on_driver):
        self._on_driver = on_driver

    def read(self, partition):
        yield self._on_driver
        yield found()


def found():
    return process_description(), find_file(NAME, OPTION).read_text()


def test_by_name_on_the_driver_and_in_tasks(spark, tmp_path):
    path = tmp_path / NAME
    path.write_text("content")
    spark.sparkContext.addFile(str(path))
    assert found() == (process_description(), "content"), "in the process that has the session"
    spark.dataSource.register(WhereFilesAre)
    rows = spark.read.format(WhereFilesAre.name()).load().collect()
    assert [row.content for row in rows] == ["content", "content"]
    on_driver, in_task = (row.place for row in rows)
    assert on_driver.startswith("this process on host ")
    assert in_task.startswith("a Spark task on host ")
