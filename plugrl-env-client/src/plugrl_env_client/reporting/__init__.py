"""What a run tells its user: progress, summary, logs."""
