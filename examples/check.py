"""Compare candidates with their references in plain Python, in Triton's interpreter: no services, no sandbox, no clock.

It is for authors of examples and for the tests. `python examples/check.py relu/triton_blocks shapes/softmax ...`
(default: everything that is safe to run) prints one JSON object: for each name "same", "differs: ..." or "raised: ...".
It refuses candidates that crash, hang or inspect their process: run those in a runner. The shapes are made for a GPU;
here the sizes of `shapes/small.json` replace theirs.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

os.environ["TRITON_INTERPRET"] = "1"  # before Triton is imported

import torch

from kerneldyno.evaluator.backends import backends
from kerneldyno.evaluator.devices import open_device

HERE = Path(__file__).resolve().parent
#: Seed, scale and shift of each set of inputs. The third set detects constants that fit the usual inputs by luck.
INPUT_SETS = ((0, 1.0, 0.0), (1, 1.0, 0.0), (2, 1.5, -0.25))
TOLERANCE = 1e-4


def main(names: list[str]) -> int:
    """Check `names` and print the results."""
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    backends()["triton"].warm_up(open_device("cpu"))
    print(json.dumps({name: check(name) for name in names or everything()}, indent=1))
    return 0


def everything() -> list[str]:
    """Return every candidate that may run here: not dangerous and not only for a GPU."""
    table = expected()
    safe = [name for name, row in table.items() if not row.get("dangerous") and row.get("device", "cpu") == "cpu"]
    return safe + [
        f"shapes/{path.name.removesuffix('__triton.py')}" for path in sorted(HERE.glob("shapes/*__triton.py"))
    ]


def expected() -> dict[str, dict[str, Any]]:
    """Return the table of candidates and their expected outcomes."""
    table: dict[str, dict[str, Any]] = json.loads((HERE / "problems" / "expected.json").read_text())
    return table


def check(name: str) -> str:
    """Compare one candidate with its reference."""
    problem, label = name.split("/")
    sizes: dict[str, Any] = {}
    if problem == "shapes":
        reference_path, candidate_path = HERE / "shapes" / f"{label}.py", HERE / "shapes" / f"{label}__triton.py"
        sizes = json.loads((HERE / "shapes" / "small.json").read_text())[label]
    else:
        row = expected()[name]
        if row.get("dangerous") or row.get("device", "cpu") != "cpu":
            return "refused: not outside of a runner"
        reference_path, candidate_path = HERE / "problems" / problem / "reference.py", HERE / "problems" / f"{name}.py"
    try:
        # Keep text that candidates print out of the answer.
        with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
            return compare(load(reference_path, sizes), load(candidate_path, {}))
    except (Exception, SystemExit) as error:
        return f"raised: {type(error).__name__}: {error}"


def load(path: Path, sizes: dict[str, Any]) -> ModuleType:
    """Import a source file anew, with other values for the constants in `sizes`."""
    module = ModuleType(path.stem)
    module.__file__ = str(path)
    sys.modules[path.stem] = module  # Triton's interpreter finds a kernel's globals through its module
    source = path.read_text()
    exec(compile(source, str(path), "exec"), module.__dict__)
    for constant, value in sizes.items():
        if not hasattr(module, constant):
            raise ValueError(f"{path.name} has no constant {constant}")
        setattr(module, constant, value)
    return module


def compare(reference: ModuleType, candidate: ModuleType) -> str:
    """Run both on every input set."""
    args, kwargs = split(reference.get_init_inputs())
    torch.manual_seed(0)
    model = reference.Model(*args, **kwargs)
    torch.manual_seed(0)
    model_new = candidate.ModelNew(*args, **kwargs)
    for seed, scale, shift in INPUT_SETS:
        torch.manual_seed(seed)
        inputs = [
            value * scale + shift
            if isinstance(value, torch.Tensor) and value.is_floating_point() and scale != 1
            else value
            for value in reference.get_inputs()
        ]
        copies = [value.clone() if isinstance(value, torch.Tensor) else value for value in inputs]
        want = model(*inputs)
        got = model_new(*copies)
        if difference := describe_difference(want, got):
            return f"differs: {difference}"
        for value, copy in zip(inputs, copies, strict=True):
            if isinstance(value, torch.Tensor) and not torch.equal(value, copy):
                return "differs: an input was changed"
    return "same"


def split(init_inputs: list[Any]) -> tuple[list[Any], dict[str, Any]]:
    """Split constructor arguments, KernelBench's `[[...], {...}]` or a plain list, into positional and keyword ones."""
    if len(init_inputs) == 2 and isinstance(init_inputs[0], list) and isinstance(init_inputs[1], dict):
        return init_inputs[0], init_inputs[1]
    return init_inputs, {}


def describe_difference(want: torch.Tensor, got: Any) -> str:
    """Return how two outputs differ; an empty string if they agree."""
    if not isinstance(got, torch.Tensor):
        return f"a {type(got).__name__}, expected a tensor"
    if got.shape != want.shape or got.dtype != want.dtype:
        return f"{got.dtype} {list(got.shape)}, expected {want.dtype} {list(want.shape)}"
    error = (got.double() - want.double()).abs()
    allowed = TOLERANCE + TOLERANCE * want.double().abs()
    worst = (error / allowed).max().item()
    return "" if worst <= 1 else f"by {worst:.3g} times the tolerance"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
