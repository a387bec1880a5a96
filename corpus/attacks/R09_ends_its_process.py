"""R09: a reference ends its own process.

It costs its own evaluations, and the judge and all other lanes go on.

problem: silu_small
answer: twin_silu_small
backend: torch
outcome: REFERENCE_ERROR
devices: cpu, cuda
request: {"run_performance": false}
"""

import ctypes
import os
import signal
import threading
import time

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        os._exit(3)
        return torch.nn.functional.silu(x)


def get_inputs():
    return [torch.randn(64, 256)]


def get_init_inputs():
    return []


# Above is R09_exits. Variants, with what differs:
#
# R09_crashes: a read of address 0.
#   -         os._exit(3)
#   +         ctypes.string_at(0)
#
# R09_raises_system_exit: SystemExit, which ends most loops.
#   -         os._exit(3)
#   +         raise SystemExit(0)
#
# R09_kills_its_parent: its warden, if it may.
#   -         os._exit(3)
#   +         os.kill(os.getppid(), signal.SIGKILL)
#   +         os.kill(-1, signal.SIGKILL)
#   +         os._exit(4)
#
# R09_stops_itself: it never answers, and uses no processor time meanwhile.
#   -         os._exit(3)
#   +         os.kill(os.getpid(), signal.SIGSTOP)
#
# R09_ends_between_calls: a thread ends it while nobody asks it anything.
#   outcome: REFERENCE_ERROR, CORRECT
#   -         os._exit(3)
#   +         threading.Thread(target=lambda: (time.sleep(0.02), os._exit(3)), daemon=True).start()
