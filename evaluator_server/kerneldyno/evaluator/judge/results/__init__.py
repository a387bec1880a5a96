"""What is recorded about one candidate: `record` during the evaluation, `stages`, `times`, and the `verdict`."""
