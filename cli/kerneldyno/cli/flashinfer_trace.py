"""Read problems, workloads and solutions in the form of FlashInfer Trace, and make fields of a request of them.

A definition names axes, inputs, outputs and a reference `run`; each line of a workload file gives sizes of the variable
axes and says where each input comes from; a solution has files and an entry point. The form is described at
https://bench.flashinfer.ai/docs/flashinfer-trace. Everything is turned into the KernelBench form here, so evaluators need
to know nothing of it. Stored inputs that do not fit into a workload's value become compressed text of the reference. What
the form cannot say in a request is refused: native entry points, and stored inputs beyond the limit of a reference.
"""

from __future__ import annotations

import ast
import json
import pprint
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kerneldyno.cli.common import UsageError, read_source
from kerneldyno.cli.stored_inputs import StoredInputs, read_tensor
from kerneldyno.rpc.workloads import MAX_WORKLOAD_BYTES

#: The form's dtypes, and torch's.
_DTYPES = {
    **{
        name: name for name in ("float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8")
    },
    "bool": "bool",
    "float8_e4m3": "float8_e4m3fn",
    "float8_e4m3fn": "float8_e4m3fn",
    "float8_e5m2": "float8_e5m2",
}
_BACKENDS = {"triton": "triton", "python": "torch", "pytorch": "torch"}
#: Stored tensors whose JSON is longer than this (bytes) leave a workload's value if the value is too long.
_SHORT_BYTES = 64

_REFERENCE = '''{source}

# What follows was made from the definition {name}.
import torch as _torch

_CONSTANT = {constant}
_INPUTS = {inputs}
_OUTPUTS = {outputs}


def _ordered(result):
    """Return the outputs in the definition's order: one alone, several as a tuple."""
    if isinstance(result, dict):
        result = tuple(result[name] for name in _OUTPUTS)
    elif isinstance(result, list):
        result = tuple(result)
    return result[0] if isinstance(result, tuple) and len(result) == 1 else result


class Model(_torch.nn.Module):
    def forward(self, *inputs):
        return _ordered(run(*inputs))


def get_inputs(workload):
    axes = {{**_CONSTANT, **workload["axes"]}}
    return [_input(workload["inputs"].get(name, {{}}), shape, dtype, axes) for name, (shape, dtype) in _INPUTS.items()]


def _input(given, shape, dtype, axes):
    if "value" in given:
        return given["value"]
    size, dtype = [axes[axis] for axis in shape], getattr(_torch, dtype)
    if "values" in given:
        return _torch.tensor(given["values"], dtype=dtype).reshape(size)
    if "stored" in given:
        return _stored(given["stored"]).to(dtype).reshape(size)
    if dtype is _torch.bool:
        return _torch.randint(0, 2, size).bool()
    if not dtype.is_floating_point:
        return _torch.randint(0, 128, size, dtype=dtype)
    return _torch.randn(size).to(dtype)


def get_init_inputs():
    return []
{stored}'''

_CANDIDATE = '''"""Calls the entry point of the solution {name}."""

import torch
from {module} import {function} as _entry

_INPUTS = {inputs}
_OUTPUTS = {outputs}
_CONSTANT = {constant}
_INTO = {into}


class ModelNew(torch.nn.Module):
    def forward(self, *inputs):
        if not _INTO:
            result = _entry(*inputs)
            if isinstance(result, dict):
                result = tuple(result[name] for name in _OUTPUTS)
            elif isinstance(result, list):
                result = tuple(result)
            return result[0] if isinstance(result, tuple) and len(result) == 1 else result
        axes, where = dict(_CONSTANT), None
        for (shape, _), given in zip(_INPUTS.values(), inputs):
            if isinstance(given, torch.Tensor):
                axes.update(zip(shape, given.shape))
                where = given.device
        made = [
            torch.empty([axes[axis] for axis in shape], dtype=getattr(torch, dtype), device=where)
            for shape, dtype in _OUTPUTS.values()
        ]
        _entry(*inputs, *made)
        return made[0] if len(made) == 1 else tuple(made)
'''


def request_fields(definition: Path, solution: Path, workloads: Path | None) -> dict[str, Any]:
    """Return the fields of a request for a solution of a definition, on the workloads of a file.

    Args:
        definition: file of the definition, or "-" for standard input, as the others.
        solution: file of the solution.
        workloads: file of workloads, a line each; None if the definition has no variable axes.

    Raises:
        UsageError: a file cannot be read, or says something that a request cannot; the message says what.
    """
    defined = _object(definition)
    solved = _object(solution)
    found = _solution(solved, defined, solution)
    kept = StoredInputs()
    lines = [] if workloads is None else read_source(workloads).splitlines()
    values = [
        _workload(_parsed(line, f"{workloads}, line {number}"), defined, workloads, kept)
        for number, line in enumerate(lines, 1)
        if line.strip()
    ]
    values = [value for value in values if value is not None]
    if not values:
        if variable := [name for name, axis in defined["axes"].items() if axis.get("type") != "const"]:
            raise UsageError(
                f"{definition} has variable axes ({', '.join(variable)}): give their sizes with --workloads"
            )
        values = [{"name": str(defined["name"])[:100], "value": {"axes": {}, "inputs": {}}}]
    found["workloads"] = values
    found["reference_code"] = _reference(defined, definition, kept.source())
    kept.check(found["reference_code"], workloads)
    return found


def is_definition(path: Path | None) -> bool:
    """Return True if a file on the command line is meant as a definition."""
    return path is not None and path.suffix == ".json"


def _object(path: Path) -> dict[str, Any]:
    return _parsed(read_source(path), str(path))


def _parsed(text: str, name: str) -> dict[str, Any]:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{name} is not JSON: {error}") from error
    if not isinstance(data, dict):
        raise UsageError(f"{name} holds a {type(data).__name__}, not a JSON object")
    return data


def _tensors(defined: Mapping[str, Any], field: str, path: Path | str) -> dict[str, tuple[list[str], str]]:
    """Return names, axes and torch dtypes of the inputs or outputs."""
    made = {}
    for name, tensor in _need(defined, field, path).items():
        dtype = str(tensor.get("dtype"))
        if dtype not in _DTYPES:
            raise UsageError(f"{path}: {field}.{name} has dtype {dtype}; known are {', '.join(_DTYPES)}")
        made[name] = (list(tensor.get("shape") or []), _DTYPES[dtype])
        if unknown := set(made[name][0]) - set(defined["axes"]):
            raise UsageError(f"{path}: {field}.{name} has an axis that is not defined: {', '.join(sorted(unknown))}")
    return made


def _constant(defined: Mapping[str, Any]) -> dict[str, int]:
    return {name: int(axis["value"]) for name, axis in defined["axes"].items() if axis.get("type") == "const"}


def _need(data: Mapping[str, Any], field: str, path: Path | str) -> Any:
    if field not in data:
        raise UsageError(f"{path} has no `{field}`; is it in the form of FlashInfer Trace?")
    return data[field]


def _reference(defined: Mapping[str, Any], path: Path, stored: str) -> str:
    for field in ("name", "axes", "reference"):
        _need(defined, field, path)
    return _REFERENCE.format(
        source=defined["reference"],
        name=json.dumps(defined["name"]),
        constant=pprint.pformat(_constant(defined)),
        inputs=pprint.pformat(_tensors(defined, "inputs", path), sort_dicts=False),
        outputs=pprint.pformat(list(_tensors(defined, "outputs", path))),
        stored=stored,
    )


def _solution(solved: Mapping[str, Any], defined: Mapping[str, Any], path: Path) -> dict[str, Any]:
    spec, sources = _need(solved, "spec", path), _need(solved, "sources", path)
    if solved.get("definition") != defined.get("name"):
        raise UsageError(f"{path} solves {solved.get('definition')}, and the definition is {defined.get('name')}")
    language = str(spec.get("language")).lower()
    entry, _, function = str(spec.get("entry_point")).partition("::")
    if language not in _BACKENDS or not entry.endswith(".py") or not function.isidentifier():
        text = "give a Python function (main.py::run) in a solution whose language is triton or python"
        raise UsageError(f"{path}: the entry point {spec.get('entry_point')} in {language} cannot be called; {text}")
    outputs, inputs = _tensors(defined, "outputs", path), _tensors(defined, "inputs", path)
    files = {str(source["path"]): str(source["content"]) for source in sources}
    into = spec.get("destination_passing_style")
    if into is None:
        into = _takes_outputs(files.get(entry, ""), function, len(inputs), len(outputs))
    return {
        "kernel_code": _CANDIDATE.format(
            name=json.dumps(str(solved.get("name")))[1:-1],
            module=entry.removesuffix(".py").replace("/", "."),
            function=function,
            inputs=pprint.pformat(inputs, sort_dicts=False),
            outputs=pprint.pformat(outputs, sort_dicts=False),
            constant=pprint.pformat(_constant(defined)),
            into=bool(into),
        ),
        "kernel_files": files,
        "backend": _BACKENDS[language],
    }


def _takes_outputs(source: str, function: str, inputs: int, outputs: int) -> bool:
    """Return whether an entry function gets its outputs as arguments, for a solution that does not say so.

    Older solutions do not say so and return their outputs. In newer releases of the form, the default is that outputs are
    arguments. The number of parameters tells the two apart. If it does not, the newer default applies.

    Args:
        source: text of the file with the entry function.
        function: name of the entry function.
        inputs: number of inputs of the definition.
        outputs: number of outputs of the definition.
    """
    try:
        statements = ast.parse(source).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return True  # the judge reports what is wrong with the source
    found = [each for each in statements if isinstance(each, ast.FunctionDef) and each.name == function]
    if not found or found[-1].args.vararg:  # the last definition of a name is the one that counts
        return True
    parameters = found[-1].args
    most = len(parameters.posonlyargs) + len(parameters.args)
    least = most - len(parameters.defaults)
    return not least <= inputs <= most or least <= inputs + outputs <= most


def _workload(
    line: Mapping[str, Any], defined: Mapping[str, Any], path: Path | None, kept: StoredInputs
) -> dict[str, Any] | None:
    """Return a workload of the request, or None if the line belongs to another definition.

    Stored tensors are in its value; those that do not fit are added to `kept`, and the value names them.
    """
    if line.get("definition") not in (None, defined["name"]):
        return None
    given = line.get("workload", line)
    axes = {str(name): int(size) for name, size in given.get("axes", {}).items()}
    missing = [name for name, axis in defined["axes"].items() if axis.get("type") != "const" and name not in axes]
    if missing:
        raise UsageError(f"{path}: workload {given.get('uuid')} gives no size for {', '.join(missing)}")
    inputs, tensors = {}, {}
    for name, source in given.get("inputs", {}).items():
        if source.get("type") == "scalar":
            inputs[name] = {"value": source["value"]}
        elif source.get("type") == "safetensors":
            tensors[name] = tensor = read_tensor(Path(source["path"]), source["tensor_key"], path)
            inputs[name] = {"values": tensor.numbers} if tensor.fits else {"stored": kept.add(tensor)}
        elif source.get("type") != "random":
            raise UsageError(
                f"{path}: input {name} is of type {source.get('type')}; known are random, scalar, safetensors"
            )
    value = {"axes": axes, "inputs": inputs}
    if len(json.dumps(value).encode()) > MAX_WORKLOAD_BYTES:
        long = [name for name in tensors if len(json.dumps(inputs[name])) > _SHORT_BYTES]
        inputs |= {name: {"stored": kept.add(tensors[name])} for name in long}
    if (size := len(json.dumps(value).encode())) > MAX_WORKLOAD_BYTES:
        text = f"its axes and inputs take {size} bytes as JSON, and at most {MAX_WORKLOAD_BYTES} fit into a request"
        raise UsageError(f"{path}: workload {given.get('uuid')}: {text}")
    name = ", ".join(f"{axis}={size}" for axis, size in axes.items()) or str(given.get("uuid"))
    return {"name": name[:100], "value": value}
