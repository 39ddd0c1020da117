"""Real time for robots: when steps happen, how late answers are, how old observations are. No I/O, no numpy."""
