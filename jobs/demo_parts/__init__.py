"""What the demo does besides its stream."""
