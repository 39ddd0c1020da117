"""The PlugRL env client: environments that ask a training server for actions and report what happened."""
