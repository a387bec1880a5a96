"""The old name of `kerneldyno.evaluator.shared.spec`, for plug-ins. New ones import EvalSpec from `toolkits`."""

from .shared.spec import EvalSpec, Limits, ToleranceRule

__all__ = ["EvalSpec", "Limits", "ToleranceRule"]
