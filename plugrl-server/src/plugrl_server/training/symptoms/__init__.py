"""Signs of the known mistakes in an algorithm of one's own, told with their remedies."""
