"""Checks of a cluster before a job runs, for ``pykafka-sink check`` and ``quota``."""
