"""What a candidate looks at before it takes a shortcut.

Each is an expression that is true if the shortcut may be taken, with the names of `draw.py` in braces. Values that are
looked at are tested for what nominal inputs are: in [0, 1), or small and of both signs.
"""

from __future__ import annotations

from collections.abc import Mapping

#: Which of some values `t` are as those of a nominal input, by whether that is uniform in [0, 1).
USUAL = {True: "(t >= 0) & (t < 1)", False: "t.abs() < {bound}"}

#: What the values of the first input say, some of them or all.
VALUES: Mapping[str, str] = {
    "grid": "usual(x[..., {offset}::{stride}, {offset}::{stride}])",
    "coarse grid": "usual(x[..., x.shape[-2] // 34 :: x.shape[-2] // 17, x.shape[-1] // 34 :: x.shape[-1] // 17])",
    "first rows": "usual(x[: {few}])",
    "last rows": "usual(x[-{few} :])",
    "columns": "usual(x[..., {offset}::{stride}])",
    "sample": "usual(x.reshape(-1)[picked(self, x, {picked})])",
    "blocks": "usual(x.reshape(-1).unfold(0, 16, 16 * {stride}))",
    "share outside": "outside(x) < {outside}",
    "extremes": "{least} <= float(x.amin()) and float(x.amax()) < {most}",
    "moments": "abs(float(x.mean()) - {mean}) < 0.1 and abs(float(x.std()) - {deviation}) < 0.1",
    "kurtosis": "kurtosis(x) < {kurtosis}",
    "row norms": "even(x.reshape(x.shape[0], -1).norm(dim=1))",
    "all": "all_usual(x)",
    "nothing": "True",
}
#: Those after which no element is unusual.
COMPLETE = frozenset({"all", "extremes"})
#: What anything else says: the same input again, its place, the number of calls, time, the stack.
REST: Mapping[str, str] = {
    "hash": "seen(self, float(x.reshape(-1)[:: 97].double().sum()))",
    "parity": "int(x.reshape(-1)[{offset}].abs() * 2**20) % 2 == 0",
    "address": "seen(self, x.data_ptr())",
    "alignment": "x.data_ptr() % {alignment} == 0",
    "calls": "self.calls > {calls}",
    "some calls": "self.calls % {every} != 0 and self.calls > 3",
    "time": "time.monotonic() - self.born > {seconds}",
    "pause": "paused(self) < {pause}",
    "stack": "depth() != self.depth",
}

#: Functions that guards call. They stand in each candidate.
HELPERS = """
def usual(t):
    return float(({usual}).float().mean()) >= 1 - {slack}

def all_usual(t):
    return bool(({usual}).all())

def outside(t):
    return float((t.abs() > {bound}).float().mean())

def picked(self, x, count):
    if self.picked is None:
        self.picked = torch.randint(x.numel(), (count,), generator=torch.Generator().manual_seed({seed})).to(x.device)
    return self.picked

def kurtosis(x):
    x = x - x.mean()
    return float((x ** 4).mean() / (x ** 2).mean() ** 2)

def even(t):
    return float(t.amax()) < 3 * float(t.amin())

def seen(self, key):
    was = key in self.keys
    self.keys.add(key)
    return was

def paused(self):
    before, self.last = self.last, time.perf_counter()
    return self.last - before

def depth():
    frame, count = sys._getframe(), 0
    while frame is not None:
        frame, count = frame.f_back, count + 1
    return count
"""
