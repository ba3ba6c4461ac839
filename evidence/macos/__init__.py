"""The sink on a machine with macOS."""
