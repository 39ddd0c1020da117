"""What a run writes down and prints about itself: `config.json`, configuration values as JSON, closing words, log."""
