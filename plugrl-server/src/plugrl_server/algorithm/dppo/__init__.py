"""Diffusion policy policy optimisation."""
