"""The untrusted side of the wall: zygote, warden, sandbox and the harness inside which a candidate runs.

Reading order: `zygote` forks a `warden` for each runner, the warden raises the `sandbox` and starts the `harness`.
Nothing here decides anything about a candidate: the judge does, on what it measures and compares itself.
"""
