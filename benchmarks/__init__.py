"""Side-by-side measurements of rlcore, its limits and its peers: `python -m benchmarks --help`.

Nothing here is imported by rlcore or timed by a test. This package's own modules need the standard library only, so
that its workers also run in the peers' environments.
"""
