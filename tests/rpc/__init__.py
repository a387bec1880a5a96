"""Tests of code that client and services share: calls, TLS, tokens, identity, validation."""
