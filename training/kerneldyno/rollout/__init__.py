"""Rollouts without a trainer: a model behind an OpenAI-compatible endpoint writes kernels over several turns.

Reading order: problems.py (what is to be solved), prompts.py (what the model is told), endpoint.py (asking it), episodes.py
(one sample of one problem, turn by turn), runner.py (many at once, resumable), report.py and plot.py (what came out).
`kerneldyno rollout` and `kerneldyno trajectories` are the commands; needs the extra [rollout], and no torch.
"""
