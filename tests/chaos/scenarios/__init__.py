"""One module for each row (or few) of the fault matrix: `ROWS`, `TITLE`, and `run(plan)`, which returns figures."""
