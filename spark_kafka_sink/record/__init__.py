"""Rows as Kafka records: Arrow columns, kernels, record batches v2, codecs.

- ``columns``: the addresses of an Arrow batch's columns, and the digest of its rows
- ``kernels``: the sources of the kernels; ``records`` appends rows, ``hashing`` finds partitions
- ``compiled``: the kernels as a process calls them
- ``compression``: the codecs
- ``record_batch``: the header of a batch, and batches of few records in plain Python
- ``dead_letters``: the faults of rows, and dead letters made of such rows
"""
