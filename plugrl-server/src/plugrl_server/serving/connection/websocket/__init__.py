"""The bytes of a connection: HTTP, keys, frames, closing. Nothing of PlugRL's messages."""
