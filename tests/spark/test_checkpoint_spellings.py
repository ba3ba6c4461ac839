"""Hadoop's own Path says which spellings are one folder, so that ours is no opinion."""

import itertools

import pytest

from spark_kafka_sink.transactions.checkpoints import qualified

_SPELLINGS = [
    *("/c/q", "file:/c/q", "file:///c/q", "/c//q", "/c/./q", "/c/x/../q", "/c/q/", "/c/q//"),
    *("/c/q/.", "/c/q ", " /c/q", "./c/q", "c/q", "/c/a b", "/c:d/q", "///c/q", "//c/q", "/c/ä"),
    *("hdfs://nn/c/q", "hdfs:///c/q", "hdfs:/c/q", "s3a://b/c/q", "s3a://b/", "file://c/q"),
    "abfss://one@a.net/c/q",
]


@pytest.mark.parametrize("default", ["file:///", "hdfs://nn"])
def test_one_folder_for_hadoop_is_one_here(spark, default):
    """Only a folder of the default file system, which we do not know, may be like several."""
    path = spark._jvm.org.apache.hadoop.fs.Path
    file_system, folder = spark._jvm.java.net.URI(default), path("/work")

    def hadoop(text):
        return path(text).makeQualified(file_system, folder).toString()

    for one, other in itertools.combinations(_SPELLINGS, 2):
        ours, theirs = qualified(one, "/work"), qualified(other, "/work")
        if hadoop(one) == hadoop(other):
            assert ours.is_same(theirs), (one, other)
        elif None not in (ours.scheme, theirs.scheme, ours.authority, theirs.authority):
            assert not ours.is_same(theirs), (one, other)
