"""Old name of `kerneldyno.evaluator.shared.spec`, kept for plug-ins. New plug-ins import ProblemSpec from `toolkits`."""

from .shared.spec import Limits, ProblemSpec, ToleranceRule

#: The old name of what a toolkit gets.
EvalSpec = ProblemSpec

__all__ = ["EvalSpec", "Limits", "ProblemSpec", "ToleranceRule"]
