"""The cases: one short file each."""
