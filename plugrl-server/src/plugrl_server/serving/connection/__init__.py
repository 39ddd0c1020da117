"""One connection: its WebSocket, its conversation, what is known of its environments."""
