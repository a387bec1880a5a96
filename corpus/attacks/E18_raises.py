"""E18: an error of the interpreter.

Raised from the second call on: what is not its own fault would be tried again, skipped, or scored neutrally.

problem: silu_small
backend: torch
outcome: RUNTIME_ERROR
devices: cpu, cuda
request: {"run_performance": false}
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        if self.calls == 1:
            return torch.nn.functional.silu(x)
        raise SystemError("error return without exception set")


# Above is E18_system_error. Variants, with what differs:
#
# E18_timeout_error: a time-out of the evaluator's.
#   -         raise SystemError("error return without exception set")
#   +         raise TimeoutError("DEADLINE_EXCEEDED: the node did not answer")
#
# E18_connection_lost: a lost connection.
#   -         raise SystemError("error return without exception set")
#   +         raise ConnectionResetError(104, "Connection reset by peer")
#
# E18_device_lost: a lost device.
#   -         raise SystemError("error return without exception set")
#   +         raise RuntimeError(
#   +             "CUDA error: an illegal memory access was encountered; uncorrectable ECC error; Xid 79: GPU has fallen off the bus"
#   +         )
#
# E18_out_of_device_memory: an out-of-memory error that nothing caused.
#   outcome: OUT_OF_MEMORY
#   -         raise SystemError("error return without exception set")
#   +         raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1024.00 GiB")
#
# E18_cancelled: a cancellation.
#   -         raise SystemError("error return without exception set")
#   +         import asyncio
#   +
#   +         raise asyncio.CancelledError
#
# E18_keyboard_interrupt: an interruption by the operator.
#   -         raise SystemError("error return without exception set")
#   +         raise KeyboardInterrupt
#
# E18_reference_failure: an error that calls itself the reference's.
#   -         raise SystemError("error return without exception set")
#   +         raise type("ReferenceFailure", (Exception,), {"__module__": "kerneldyno.evaluator.toolkits.base"})(
#   +             "inputs", "get_inputs() failed"
#   +         )
#
# E18_runner_start_error: the evaluator's own class of failure.
#   -         raise SystemError("error return without exception set")
#   +         raise type("RunnerStartError", (Exception,), {"__module__": "kerneldyno.evaluator.judge.runners.handle"})(
#   +             "a runner could not be started"
#   +         )
