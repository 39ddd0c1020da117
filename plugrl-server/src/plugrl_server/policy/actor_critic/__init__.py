"""What the actor-critic policies share: two tanh MLPs over normalised states."""
