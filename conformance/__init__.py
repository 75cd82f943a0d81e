"""Real clients against a running broker, seen only through the broker's sockets and files."""
