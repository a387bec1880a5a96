"""Whether this process is traced: off unless the standard OpenTelemetry variables say otherwise.

The scheduler and the evaluator's server process call `start` once, the client when it is opened. Without configuration
nothing of OpenTelemetry is imported. Judges, zygotes and runners never come here, and do not see the variables
(`forget_settings`). kerneldyno.rpc.span_export sends spans; callers decide what is traced. docs/tracing.md has the whole.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from kerneldyno.rpc import installing

if TYPE_CHECKING:  # importing it costs a tenth of a second and 20 MB
    from kerneldyno.rpc.span_export import Spans

log = logging.getLogger(__name__)

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")


def configured(environment: Mapping[str, str] = os.environ) -> bool:
    """Say whether the environment asks for traces: by an OTLP endpoint, or by OTEL_TRACES_EXPORTER=otlp."""
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    if exporter := environment.get("OTEL_TRACES_EXPORTER", "").strip():
        return "otlp" in exporter.split(",")
    return any(environment.get(name) for name in _ENDPOINTS)


def start(service: str) -> Spans | None:
    """Return where spans go; None when nothing is configured, or when what is configured cannot be used, which is logged.

    `service` is the name of this process where OTEL_SERVICE_NAME does not say.
    """
    if not configured():
        return None
    try:
        from kerneldyno.rpc.span_export import Spans

        return Spans(service)
    except ImportError as error:
        log.warning("event=tracing_off why=%r fix=%r", str(error), installing.command("tracing"))
    except Exception as error:  # whatever the SDK makes of a setting: tracing must never keep a service from its work
        log.warning("event=tracing_off why=%r fix='see the OTEL_ variables in docs/tracing.md'", str(error))
    return None


def forget_settings() -> None:
    """Take the settings, which may hold a collector's address and its keys, out of this process's environment.

    For a process that starts others; `start` has read them.
    """
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        del os.environ[name]
