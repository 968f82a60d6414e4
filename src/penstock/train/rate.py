"""The learning rate, by how many tokens are behind: the same for any batch size and number of ranks."""

import math

from penstock.train.config import TrainConfig


def learning_rate(config: TrainConfig, done: float) -> float:
    """The rate when the share `done` of the run's tokens is behind."""
    done = min(max(done, 0.0), 1.0)
    if done < config.warmup:
        return config.lr * done / config.warmup
    lowest = config.lr * config.min_lr
    if config.schedule == "wsd":
        falling = (done - (1 - config.decay)) / config.decay if config.decay else 0.0
        return config.lr + (lowest - config.lr) * min(max(falling, 0.0), 1.0)
    along = (done - config.warmup) / max(1e-12, 1 - config.warmup)
    return lowest + (config.lr - lowest) * 0.5 * (1 + math.cos(math.pi * along))
