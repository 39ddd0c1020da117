"""The training loop's core and everything a run writes and shows: folder, metrics, trackers, curve, progress."""
