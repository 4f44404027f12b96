"""Policy graphs: how an agent acts, what it makes of experience, and its gradients."""
