"""What every room may use: errors, names, time and chance, entry points of users' code."""
