"""Recorded experience: how it lies in files, and how it becomes batches to learn from."""
