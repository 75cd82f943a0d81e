"""Frames made by hand: an independent second hand that shares no code with the broker."""
