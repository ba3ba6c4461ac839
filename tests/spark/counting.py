"""An interceptor that counts objects, in a module that brings hardly any into the worker itself."""

import gc

import pyarrow as pa


class CountObjects:
    """An interceptor: values become the number of objects that a collection walks over."""

    def on_send(self, arrow_batch):
        count = str(len(gc.get_objects())).encode()
        values = pa.array([count] * arrow_batch.num_rows, pa.binary())
        return pa.RecordBatch.from_arrays([values], schema=arrow_batch.schema)
