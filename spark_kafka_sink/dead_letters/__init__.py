"""Dead letters for operators: read, counted, replayed."""
