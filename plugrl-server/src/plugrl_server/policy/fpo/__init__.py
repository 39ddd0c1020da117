"""The flow-matching policy of flow policy optimisation: two SiLU MLPs over normalised states."""
