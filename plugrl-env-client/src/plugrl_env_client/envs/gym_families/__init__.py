"""Families of Gymnasium environments whose defaults are those of the literature on them."""
