"""Gymnasium environments, single and vectorised, as `BaseEnv`."""
