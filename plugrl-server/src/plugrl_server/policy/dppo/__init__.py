"""The diffusion MLP of DPPO."""
