"""Recorded histories of writers, readers and groups, and the rules for each history."""
