"""Bearer tokens: their sources, and when they are renewed."""
