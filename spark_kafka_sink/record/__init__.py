"""Record batches v2: encoding and compression."""
