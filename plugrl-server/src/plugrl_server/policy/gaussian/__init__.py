"""Diagonal Gaussian actor-critic for Box action spaces."""
