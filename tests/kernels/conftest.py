"""Skip tests that compile kernels if numba is missing: its version needs Python 3.10."""

from importlib.util import find_spec

collect_ignore = [] if find_spec("numba") else ["test_checked_kernels.py"]
