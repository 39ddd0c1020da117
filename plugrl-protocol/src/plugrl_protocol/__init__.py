"""PlugRL."""
