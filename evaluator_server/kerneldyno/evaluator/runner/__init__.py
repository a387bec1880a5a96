"""The untrusted side of the evaluator: zygote, warden, sandbox, and the harness in which a candidate runs.

Reading order: `zygote` forks a `warden` for each runner; the warden sets up the `sandbox` (its parts are in `..walls`)
and starts the `harness`. When a judge starts, `probe` tries once to break out of the sandbox. Nothing here decides
about a candidate: the judge decides, and uses only its own measurements and comparisons.
"""
