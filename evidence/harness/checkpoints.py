"""Checkpoints of Spark's streams."""


def forget_last(commits):
    """As when the driver dies before Spark has written down that the last micro-batch is done."""
    last = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
    (commits / str(last)).unlink()
    (commits / f".{last}.crc").unlink()
