"""What is written down about one candidate: `record` while it is judged, `stages`, `times`, and the `verdict`."""
