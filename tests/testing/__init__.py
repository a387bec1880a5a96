"""The public package kerneldyno.testing, used as a trainer's tests use it."""
