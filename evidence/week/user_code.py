"""What users bring along, beside ``evidence.pairs.user_code``: a partitioner that leaves some rows to the sink."""

import pyarrow as pa
import pyarrow.compute as pc

DECIDED_PARTITIONS = 3


def partition_of(size):
    """Return the partition of a value by its length; None leaves the row to the sink."""
    return size % DECIDED_PARTITIONS if size % 2 else None


def by_length(keys, values, partitions_count):
    """Odd lengths decide the partition; for even lengths the sink chooses one in the task's rack."""
    return pa.array([partition_of(n) for n in pc.binary_length(values).to_pylist()], pa.int32())
