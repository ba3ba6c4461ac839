"""The commands of ``pykafka-sink``, with their checks, reports and replays."""
