"""The scheduler: its state machine, its services with scripted nodes, its process."""
