"""A failure of the problem, as the exception that ends an evaluation: the candidate is not to blame.

Toolkits raise it, and the judge raises it for what a process that runs a reference says or does.
"""

from __future__ import annotations

from .out_of_memory import asked_bytes, is_lack_of_memory, text_means_lack_of_memory
from .tracebacks import ErrorDescription, describe_error

#: Name of a reference's source in tracebacks.
REFERENCE_FILE = "reference.py"


class ReferenceFailure(Exception):  # noqa: N818  (a failure of the problem, not of this program)
    """The reference, or the cases, could not be used. `stage` says where, and `error` why."""

    def __init__(self, stage: str, error: BaseException) -> None:
        super().__init__(f"{stage}: {type(error).__name__}: {error}")
        self.stage = stage
        self.error = describe_error(error, REFERENCE_FILE)
        #: Whether memory ran out, and how many bytes could not be allocated; 0 if unknown.
        self.lacked_memory: bool = (
            error.lacked_memory if isinstance(error, ReferenceFailure) else is_lack_of_memory(error)
        )
        self.asked_bytes = asked_bytes(str(error)) if self.lacked_memory else 0
        #: True if a signal ended the process, perhaps from outside: by a host that ran out of memory, or by a person.
        self.was_killed = False

    def again(self) -> ReferenceFailure:
        """Return the same failure, to be kept or raised once more.

        One that was raised keeps the frames through which it passed, with all tensors in them.
        """
        same = ReferenceFailure.__new__(ReferenceFailure, *self.args)
        same.__dict__.update(self.__dict__)
        return same

    @classmethod
    def from_runner(cls, stage: str, described: ErrorDescription) -> ReferenceFailure:
        """Create one from what `describe_error` returned in a reference's runner."""
        failure = cls(stage, RuntimeError(described.message))
        failure.args = (f"{stage}: {described.type}: {described.message}",)
        failure.error = described
        # The message of a ReferenceFailure in the runner names its cause.
        if text_means_lack_of_memory(f"{described.type}: {described.message}"):
            failure.lacked_memory, failure.asked_bytes = True, asked_bytes(described.message)
        return failure
