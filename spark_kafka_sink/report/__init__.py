"""What lines of metrics mean, for people: a page, a terminal, and advice in words."""
