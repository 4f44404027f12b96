"""What runs in a process of its own; each is started as `python -m benchmarks.workers.NAME JSON`."""
