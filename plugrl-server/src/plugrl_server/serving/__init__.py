"""The serving side: sockets, sessions, batches and turns; the only place with asyncio."""
