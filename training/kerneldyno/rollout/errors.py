"""Exceptions of rollouts.

KernelDynoError                     base of all errors of KernelDyno (kerneldyno.rpc.errors)
└── RolloutError                    base of this family
    ├── ProblemError                a problem or a problem set cannot be used; also a ValueError
    ├── SamplingError               a sampling option cannot be used; also a ValueError
    ├── EndpointURLError            the endpoint's URL cannot be used; also a ValueError
    ├── PlotError                   a report cannot be plotted; also a ValueError
    ├── OtherConfigError            the trajectory file belongs to a run with another configuration
    └── EndpointError               the endpoint gave no answer
        ├── GenerationFailedError   no answer to this prompt, also after retries: a failed generation
        │   └── ContextFullError    the prompt does not fit the model's context
        ├── EndpointRefusedError    no prompt will get an answer: wrong key, model or address; it ends the run
        └── EndpointAwayError       the endpoint answers nothing any more; it ends the run
"""

from __future__ import annotations

from typing import ClassVar

from kerneldyno.rpc.errors import KernelDynoError


class RolloutError(KernelDynoError):
    """A rollout cannot start or cannot continue. Base of all errors of this package."""


class ProblemError(RolloutError, ValueError):
    """A problem or a problem set cannot be used; the message says which one and what to write instead."""


class SamplingError(RolloutError, ValueError):
    """A sampling option cannot be used in a rollout."""


class EndpointURLError(RolloutError, ValueError):
    """The base URL of an endpoint cannot be used."""


class PlotError(RolloutError, ValueError):
    """There is nothing to plot."""


class OtherConfigError(RolloutError):
    """The trajectory file belongs to a run with another configuration, or to no rollout."""


class EndpointError(RolloutError):
    """The endpoint gave no answer."""


class GenerationFailedError(EndpointError):
    """The endpoint gave no answer to this prompt."""

    #: Value of `ended` in the records of an episode that ends with this error.
    ended: ClassVar[str] = "generation_failed"


class ContextFullError(GenerationFailedError):
    """The prompt does not fit the model's context."""

    ended = "context_full"


class EndpointRefusedError(EndpointError):
    """The endpoint refuses every prompt until its key, model or address is corrected."""


class EndpointAwayError(EndpointError):
    """The endpoint answers nothing any more; generations that failed for this reason are not recorded."""
