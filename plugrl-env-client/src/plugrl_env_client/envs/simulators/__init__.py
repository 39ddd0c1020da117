"""Families that bring a robot simulator of their own: Meta-World, LIBERO, robomimic's tasks in robosuite."""
