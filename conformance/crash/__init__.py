"""SIGKILL at random moments under mixed writers and groups: acknowledged records must survive."""
