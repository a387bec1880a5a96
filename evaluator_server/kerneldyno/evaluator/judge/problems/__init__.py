"""What a candidate is compared with: the reference, its inputs and expected outputs, examined once and kept.

Reading order: `cache` keeps built problems. `inputs` and `stress` make inputs. `trial` makes one input set with its
expected output; `noise` and `excerpt` do so for large problems. `examination` tries `mutants` on a problem.
"""
