"""Flow policy optimisation (FPO and FPO++)."""
