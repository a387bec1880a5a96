"""Code that judge, runner and server share. It imports nothing else of the evaluator.

`wire` and `tree` carry values between processes, `spec` is the plain form of a request, `linux` makes system calls,
`proc` reads /proc, `nvml` queries the GPU driver, and `startup` prepares each process of a device.
"""
