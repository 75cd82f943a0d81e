"""Hand-made frames: an independent implementation that shares no code with the broker."""
