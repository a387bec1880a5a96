"""What judge, runner and server share. Imports nothing else of the evaluator.

`wire` and `tree` are how values cross between processes, `spec` is what a judge is asked, `linux` makes system calls,
`proc` reads /proc, `nvml` asks the GPU driver, `startup` is what every process of a device does first.
"""
