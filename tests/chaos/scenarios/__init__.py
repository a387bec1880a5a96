"""The scenarios: each module is for one or a few rows of the fault matrix. `run(plan)` returns their figures."""
