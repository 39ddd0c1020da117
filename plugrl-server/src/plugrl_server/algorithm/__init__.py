"""Algorithms. A contributor's plain imports may be added here; built-ins are listed lazily in `builtins.py`."""
