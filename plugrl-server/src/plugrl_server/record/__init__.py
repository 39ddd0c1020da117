"""What a run writes down about itself: `config.json`, and configuration values as JSON."""
