"""Python imports this module when it starts: a trap's point before anything of the sink is loaded.

The first folder of ``PYTHONPATH`` in processes of a driver that ``driver.py`` starts.
"""

import sys

_COMMITS = ("python_streaming_sink_runner", "commit_data_source_write")
"""Spark's modules whose process commits and aborts. Its first start in a driver has this point."""

if any(argument.endswith(_COMMITS) for argument in getattr(sys, "orig_argv", ())):
    from evidence.harness.crash import COMMIT_STARTS, hook

    hook(COMMIT_STARTS)
