"""What benchmarks send and compute, and short runs of them."""
