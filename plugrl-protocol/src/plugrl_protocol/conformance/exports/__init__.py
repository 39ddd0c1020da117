"""A report as files for other programs."""
