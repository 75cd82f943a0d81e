"""Recorded histories of writers, readers and groups, and what must hold in each of them."""
