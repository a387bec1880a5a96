"""The scheduler: accepts evaluations, spreads them over the registered nodes, and returns their results."""
