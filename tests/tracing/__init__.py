"""Tests of the traces of client, scheduler and evaluator, as a collector receives them."""
