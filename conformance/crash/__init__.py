"""SIGKILL at random moments under mixed writers and groups: what was acknowledged must be there."""
