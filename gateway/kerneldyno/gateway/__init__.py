"""One HTTP gateway for trainers that speak HTTP: their routes on one side, the scheduler's RewardService on the other.

Reading order: app.py (routes), guard.py (who may come in, and how much), labels.py (which problem a label means),
rewards.py (one response, one reward), trainers.py (OpenRLHF, slime), kernelgym.py (drop-in for KernelGYM's server),
tasks.py (its task ids), environment.py (OpenEnv-style episodes), server.py (the process). `kerneldyno gateway` is the
command; needs the extra [gateway].

Infrastructure that fails is a 503 with Retry-After on every route, never a reward of 0. The gateway keeps nothing that
matters: verdicts are the scheduler's, which answers a repeated request by the work that runs or is done.
"""
