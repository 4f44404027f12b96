"""The `rlcore` command: a thin shell around the driver and the API."""
