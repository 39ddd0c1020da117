"""The client's end of a connection: socket shell, reconnect policy, interrupts."""
