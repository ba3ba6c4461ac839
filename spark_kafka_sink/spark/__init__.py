"""The code that Spark calls. Its modules, in the order of a write:

1. ``source``: ``format("pykafka-sink")``; ``frames`` does the same without a data source
2. ``planning``: all steps on the driver before the first task; it calls ``preflight`` (cluster),
   ``row_planning`` (columns) and ``schemas`` (a schema registry)
3. ``writer``: the objects that Spark pickles, and commit and abort on the driver
4. ``task``: the rows of one task; ``dead_letters`` writes its faulty rows
5. ``commit``: the messages of tasks to the driver, and the report of a batch

``worker`` and ``daemon`` configure Spark's Python processes. ``versions`` has the differences
between versions of Spark. Only this room, jobs/ and a listener in metrics/ import pyspark.
"""
