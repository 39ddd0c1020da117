"""Processes that share the environments of a run, and the one that looks after them."""
