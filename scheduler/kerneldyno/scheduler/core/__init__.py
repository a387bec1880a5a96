"""Pure decisions: which requests are accepted, what runs where, and what is tried again. No I/O, no gRPC, no protobuf."""
