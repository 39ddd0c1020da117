"""Somebody else's package, with the template of the custom-algorithm guide in it."""
