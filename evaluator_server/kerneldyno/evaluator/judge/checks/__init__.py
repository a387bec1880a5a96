"""Checks of one candidate: `candidate` gives it orders, `correctness` compares its answers, `provenance` asks whether its
own kernels made them. `arithmetic` and `explained` tell rounding from mistakes."""
