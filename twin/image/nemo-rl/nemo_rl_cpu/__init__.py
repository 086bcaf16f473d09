"""GRPO on CPUs with NeMo-RL's config keys, log lines, checkpoint layout and manners towards Ray."""
