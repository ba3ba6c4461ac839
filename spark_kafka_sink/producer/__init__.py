"""The producer of one task. Its modules, in the order of a record's path:

1. ``producer``: the facade, the wait for metadata, the sender thread, the pool between tasks
2. ``appender``: rows into open batches; ``linger.ms``; the wait for ``buffer.memory``; size checks
3. ``partitioner``: the partition of each row, and the sticky partition
4. ``open_batches``: the table of open batches, their compression, the estimated ratio
5. ``producer_batch``: a finished batch, and how to split it
6. ``accumulator``: the queues of finished batches, and the buffer pool
7. ``sender``: one round: drain, send, complete or retry, expire
8. ``rejections``: batches that brokers reject: splits, rejected records, error messages

Beside this path: ``monitor`` synchronises the two threads; ``sequences`` has idempotence;
``transaction_manager`` has producer ids and transactions. ``waits`` logs what rows wait for.
``metadata``, ``quotas``, ``metrics``, ``telemetry`` and ``telemetry_figures`` (KIP-714) serve the
sender.
"""
