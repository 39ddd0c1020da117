"""Env clients that the server starts itself (`--client`)."""
