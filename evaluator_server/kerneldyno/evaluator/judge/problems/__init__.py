"""What a candidate is held against: the reference, its inputs and right answers, examined once and kept.

Reading order: `cache` keeps built problems, `inputs` and `stress` make inputs, `trial` makes one set of them with what is
right for it, `noise` and `excerpt` do so for large problems, `examination` tries `mutants` on a problem.
"""
