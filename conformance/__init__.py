"""Real clients against a running broker, which is seen only through its sockets and files."""
