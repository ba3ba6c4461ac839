"""Pages in a real browser: make evidence NAME=report."""
