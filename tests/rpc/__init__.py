"""What client and services share: calls, TLS, tokens, identity, validation."""
