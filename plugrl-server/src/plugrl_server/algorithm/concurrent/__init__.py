"""Learning in a process of its own, while the server's process goes on acting."""
