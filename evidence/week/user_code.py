"""What users bring along: an interceptor, and a partitioner that leaves some rows to the sink."""

import pyarrow as pa
import pyarrow.compute as pc

MARK = "!"
DECIDED_PARTITIONS = 3


class Marks:
    """Appends a mark to each value."""

    def on_send(self, arrow_batch):
        position = arrow_batch.schema.get_field_index("value")
        field = arrow_batch.schema.field(position)
        marked = pc.binary_join_element_wise(arrow_batch.column(position), MARK, "")
        return arrow_batch.set_column(position, field, marked.cast(field.type))


def partition_of(size):
    """Return the partition of a value by its length; None leaves the row to the sink."""
    return size % DECIDED_PARTITIONS if size % 2 else None


def by_length(keys, values, partitions_count):
    """Odd lengths decide the partition; for even lengths the sink chooses one in the task's rack."""
    return pa.array([partition_of(n) for n in pc.binary_length(values).to_pylist()], pa.int32())
