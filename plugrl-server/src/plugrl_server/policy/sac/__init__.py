"""The policy of soft actor-critic."""
