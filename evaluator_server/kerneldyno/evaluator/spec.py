"""Old name of `kerneldyno.evaluator.shared.spec`, kept for plug-ins. New plug-ins import EvalSpec from `toolkits`."""

from .shared.spec import EvalSpec, Limits, ToleranceRule

__all__ = ["EvalSpec", "Limits", "ToleranceRule"]
