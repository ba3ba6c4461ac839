"""What `pykafka-sink` does: its commands, and what each of them needs."""
