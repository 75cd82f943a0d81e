"""The export under kills, beside writers, and against what stock clients read."""
