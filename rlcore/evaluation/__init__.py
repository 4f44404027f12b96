"""Policy evaluators: environments and policies together, making batches of experience."""
