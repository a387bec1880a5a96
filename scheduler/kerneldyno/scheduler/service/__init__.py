"""The gRPC edge: servicers, streams, and the translation between messages and the values of `core`."""
