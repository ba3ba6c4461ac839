"""Arrow columns in the form that the kernels need."""
