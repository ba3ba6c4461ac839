"""Bearer tokens: where they come from, and when they are asked for anew."""
