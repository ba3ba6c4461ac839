"""What ``pykafka-sink check`` and ``quota`` find out about a cluster before a job runs."""
