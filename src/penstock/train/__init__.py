"""The loop, parallelism, checkpoints."""
