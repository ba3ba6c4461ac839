"""The producer: partition, accumulate, send, retry, acknowledge."""
