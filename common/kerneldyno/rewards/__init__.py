"""Turn a verdict into a reward and feedback for the next turn. Pure: no I/O but trajectory files, no gRPC, no torch.

Reading order: extraction.py (the candidate in a response), presets.py (the meaning of a RewardSpec), speedups.py (which
of a result's two speedups counts), scoring.py (the reward of a verdict), feedback.py (the text for the next turn),
trajectories.py (files of recorded turns), cold_start.py (training examples from those). The scheduler's RewardService
uses all but the last two; trainers and analyses use them on recorded results.
"""
