"""Hypothesis profiles for the whole workspace: `HYPOTHESIS_PROFILE=long uv run pytest` looks much harder."""

import os

from hypothesis import HealthCheck, settings

settings.register_profile("default", max_examples=100, deadline=None, derandomize=True, print_blob=True)
settings.register_profile(
    "long", max_examples=5_000, deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))
