"""Policies of the `lerobot` package, loaded from a folder: acting, and fine-tuning of its diffusion policy."""
