"""HTTP gateway for trainers: serves their HTTP routes and calls the scheduler's RewardService.

Reading order: app.py (routes), guard.py (checks of callers and sizes), labels.py (finds the problem of a label), rewards.py
(scores one response), trainers.py (OpenRLHF, slime), kernelgym.py (replacement for KernelGYM's server), tasks.py (its task
ids), environment.py (OpenEnv-style episodes), server.py (the process), errors.py (error answers). The command is
`kerneldyno gateway`; needs the extra [gateway].

On every route an infrastructure failure is a 503 with Retry-After, never a reward of 0. The gateway stores no verdicts: the
scheduler has them and answers a repeated request with running or finished work.
"""
