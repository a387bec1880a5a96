"""The untrusted side of the wall: zygote, warden, sandbox and the harness inside which a candidate runs.

Reading order: `zygote` forks a `warden` for each runner, the warden raises the `sandbox` (its parts are in `..walls`) and
starts the `harness`; `probe` tries to break out of it, once, when a judge starts.
Nothing here decides anything about a candidate: the judge does, on what it measures and compares itself.
"""
