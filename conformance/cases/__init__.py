"""The cases: a short file each."""
