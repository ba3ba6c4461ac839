"""The kernels as a process uses them: names, constants, and the library of machine code."""
