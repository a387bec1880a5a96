"""The report, of real results and in a real browser."""
