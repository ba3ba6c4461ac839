"""Tools for a release: its files, its bill of materials, and the check of its version."""
