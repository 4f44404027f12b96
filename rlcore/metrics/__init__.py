"""What a run shows of itself: results an iteration, files, Prometheus, a status endpoint, the terminal, a plot.

Nothing is imported here: each part is imported by whoever needs it, so that `rlcore --help` stays fast.
"""
