"""Tests of what benchmarks send and compute, and short runs of benchmarks."""
