"""The groups of a process: each has its own connection and its own turn, so that some step while others wait."""
