"""Without numba, which no Python 3.9 has in the version that compiles, no kernel is compiled."""

from importlib.util import find_spec

collect_ignore = [] if find_spec("numba") else ["test_checked_kernels.py"]
