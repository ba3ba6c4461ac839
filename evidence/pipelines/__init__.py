"""Spark Declarative Pipelines: the example, run by the real ``spark-pipelines``."""
