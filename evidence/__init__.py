"""Programs that prove what a test has no time for: README.md says which, and when to run them."""
