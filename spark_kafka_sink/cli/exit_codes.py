"""Exit codes of all commands."""

EXIT_OK = 0
"""Done, or nothing to do."""
EXIT_FAILED = 1
"""Failed; the message is on stderr."""
EXIT_REFUSED = 2
"""Wrong usage; refused; not confirmed; or a choice is left to make."""
