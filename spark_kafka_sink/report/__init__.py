"""Lines of metrics for people: a page, a terminal, and advice in words."""
