"""The evaluator of one node: a gRPC server, and behind it a judge and a zygote for each device."""
