"""Policies: what turns observations into action chunks. Built-ins are listed lazily in `builtins.py`."""
