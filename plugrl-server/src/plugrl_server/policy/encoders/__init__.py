"""Observations as networks take them: any mix of states and images."""
