"""A steady mixed load for hours, to see whether the broker's memory grows."""
