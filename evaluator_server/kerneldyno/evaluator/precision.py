"""Old name of `kerneldyno.evaluator.shared.precision`, for plug-ins. New plug-ins import round_to from `toolkits`."""

from .shared.precision import round_to

__all__ = ["round_to"]
