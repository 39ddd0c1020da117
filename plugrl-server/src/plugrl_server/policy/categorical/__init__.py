"""Categorical actor-critic for Discrete and MultiDiscrete action spaces."""
