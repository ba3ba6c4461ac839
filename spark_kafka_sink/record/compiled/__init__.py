"""What a process has of the kernels: names, constants, and the library with their machine code."""
