"""The producer's keys and the sink's options, as tables."""
