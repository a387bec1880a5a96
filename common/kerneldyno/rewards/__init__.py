"""From a verdict to a reward and to words for the next turn. Pure: no I/O but trajectory files, no gRPC, no torch.

Reading order: extraction.py (a candidate from a response), presets.py (what a RewardSpec means), speedups.py (which of a
result's two speedups counts), scoring.py (the reward of a verdict), feedback.py (the text of the next turn), trajectories.py
(what is kept of it all), cold_start.py (examples from it). The scheduler's RewardService uses all but the last two; trainers
and analyses use them on recorded results.
"""
