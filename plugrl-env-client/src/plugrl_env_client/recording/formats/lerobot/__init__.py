"""The LeRobot v3 layout."""
