"""Diffusion policies: a denoising chain whose network predicts the noise."""
