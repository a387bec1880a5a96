"""The scheduler: accepts evaluations, distributes them over the registered nodes, and returns their results."""
