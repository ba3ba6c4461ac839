"""Parts for every room: errors, names, time and randomness, entry points of users' code."""
