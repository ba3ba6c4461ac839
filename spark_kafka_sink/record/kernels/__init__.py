"""Per-record work, compiled by numba."""
