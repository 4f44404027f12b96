"""A real Kubernetes for the tests: its own binaries built, a control plane run, its API made to fail on demand."""
