"""Dead letters for those who look after them: read, counted, written again."""
