"""The server checker's part in a conversation: a client that behaves, unless it is told otherwise."""
