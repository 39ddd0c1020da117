"""Recording: whole episodes as videos, pictures, arrays and datasets, written while envs run."""
