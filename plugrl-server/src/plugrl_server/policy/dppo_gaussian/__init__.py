"""The Gaussian policy that the DPPO paper compares with."""
