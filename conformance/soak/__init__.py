"""A steady mixed load for hours, as a check that the broker's memory does not grow."""
