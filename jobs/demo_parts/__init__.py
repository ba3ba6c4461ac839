"""Parts of the demo besides its stream."""
