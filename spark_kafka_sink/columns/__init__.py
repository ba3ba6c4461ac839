"""Arrow columns as the kernels need them."""
