"""What a checker needs to meet a peer: sockets, processes, and a record of what was said."""
