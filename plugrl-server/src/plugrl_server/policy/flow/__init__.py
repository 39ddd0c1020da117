"""The base of flow-matching policies: a velocity field, and Euler steps along it."""
