"""Quicker networks for learning: compiled, or in bfloat16."""
