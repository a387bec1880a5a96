"""Options of a command grouped in dataclasses, so that a command with many options takes few parameters.

A group is a dataclass whose fields are annotated as typer parameters are: `Annotated[int, typer.Option("--turns")]`. A
command takes it as a keyword-only parameter; `with_groups` gives the command the options instead, and makes the group
from them.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import Any, get_type_hints


def with_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Return `command` with the options of its groups in place of the groups, if it has any."""
    signature = inspect.signature(command, eval_str=True)
    groups = {
        name: parameter.annotation
        for name, parameter in signature.parameters.items()
        if isinstance(parameter.annotation, type) and dataclasses.is_dataclass(parameter.annotation)
    }
    if not groups:
        return command
    fields = {name: [field.name for field in dataclasses.fields(group)] for name, group in groups.items()}

    @functools.wraps(command)
    def run(**arguments: Any) -> None:
        made = {
            name: group(**{field: arguments.pop(field) for field in fields[name]}) for name, group in groups.items()
        }
        command(**arguments, **made)

    parameters: list[inspect.Parameter] = []
    for name, parameter in signature.parameters.items():
        parameters += _parameters(groups[name]) if name in groups else [parameter]
    parameters = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in parameters]
    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def _parameters(group: type[Any]) -> list[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    return [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if field.default is dataclasses.MISSING else field.default,
            annotation=hints[field.name],
        )
        for field in dataclasses.fields(group)
    ]
