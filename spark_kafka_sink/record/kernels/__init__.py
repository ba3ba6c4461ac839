"""The sources of the kernels: functions for the work per record, which numba compiles."""
