"""Rollouts without a trainer: a model behind an OpenAI-compatible endpoint writes kernels over several turns.

Reading order: problems.py (problem sets), prompts.py (messages to the model), endpoint.py (requests to the model),
episodes.py (one sample of one problem, turn by turn), runner.py (many episodes at once, resumable), report.py and plot.py
(figures of a run), errors.py (exceptions). The commands are `kerneldyno rollout` and `kerneldyno trajectories`. Needs the
extra [rollout], and no torch.
"""
