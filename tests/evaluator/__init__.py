"""The evaluator: judges, zygotes, sandboxes, and its server with a scripted judge."""
