"""Things every floor of the server stands on: checkpoints, their codec, configuration as JSON, registries."""
