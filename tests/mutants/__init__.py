"""Mutations of the package that the tests must notice: one file of rows per room.

python -m tests.mutants                    # all rooms
python -m tests.mutants transactions 3 7   # of one room, or some of its rows, by their numbers

To add a row: a ``Mutant`` in ``MUTANTS`` of ``tests/mutants/<room>.py``, a new file for a new room.
``PLANTED`` of a room names tests that plant bugs of their own, and pass when those are caught.
"""
