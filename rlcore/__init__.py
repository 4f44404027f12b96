"""rlcore: distributed reinforcement learning from one RLJob manifest."""

__version__ = "0.1.0"
