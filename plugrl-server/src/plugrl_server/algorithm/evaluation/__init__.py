"""Measuring how good a policy is, without learning."""
