"""A policy that learns nothing: cheap actions in bounds, for smoke tests and benchmarks."""
