"""The phases of the server checker (SPEC 8.2)."""
