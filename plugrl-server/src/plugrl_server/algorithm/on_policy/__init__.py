"""What on-policy algorithms share: storing frames, advantages, mini-batches, counters and checkpoints."""
