"""One node, or some: its devices, processes and walls, and the health of its GPUs."""

from __future__ import annotations

from .board import Query, Variable, board, lines, number, table
from .colours import OUTCOMES, STAGES
from .promql import WINDOW, evaluator, per_minute, quantile, share

VARIABLES = [
    Variable("instance", "instance", 'kerneldyno_device_ready{job="kerneldyno-evaluator"}', "Node"),
    Variable(
        "device", "device", 'kerneldyno_device_ready{job="kerneldyno-evaluator", instance=~"$instance"}', "Device"
    ),
]
_NAME = "{{instance}} {{device}}"


def _node(name: str, *matchers: str, **values: str) -> str:
    return evaluator(name, 'instance=~"$instance"', *matchers, **values)


def _device(name: str, **values: str) -> str:
    return _node(name, 'device=~"$device"', **values)


def _gpu(name: str, **values: str) -> str:
    return _device(f"kerneldyno_gpu_{name}", **values)


NOW = [
    number(
        "Devices ready",
        "Devices whose judge takes work, of all that were chosen.",
        "none",
        Query(f"sum({_device('kerneldyno_device_ready')})"),
    ),
    number("Attempts", "Attempts that run here.", "none", Query(f"sum({_device('kerneldyno_running_attempts')})")),
    number(
        "Waiting",
        "Attempts on these nodes that wait for a lane.",
        "none",
        Query(f"sum({_node('kerneldyno_waiting_attempts')})"),
    ),
    number(
        "Timing",
        "Share of the time in which the devices were timing, mean.",
        "percentunit",
        Query(f"avg(rate({_device('kerneldyno_device_busy_seconds_total')}{WINDOW}))"),
    ),
    number(
        "Judges restarted, an hour",
        "Whatever the cause. References that kill their judge count, too.",
        "none",
        Query(f"sum(increase({_device('kerneldyno_judge_restarts_total')}[1h]))"),
        steps=((None, "green"), (3, "orange"), (10, "red")),
    ),
    number(
        "Sandbox layers that hold",
        "Share of the layers that the judges proved when they started. What a missing one means: docs/operating.md.",
        "percentunit",
        Query(f"avg({_device('kerneldyno_sandbox_layer_active')})"),
    ),
]

WORK = [
    lines(
        "Attempts a minute, by outcome",
        "What these nodes finished. One node whose mix differs from the others' is the suspect, not the candidates.",
        "none",
        Query(per_minute(_node("kerneldyno_attempts_total"), "outcome"), "{{outcome}}"),
        stacked=True,
        colours=OUTCOMES,
    ),
    lines(
        "Attempts now, by stage",
        "What occupies the lanes of these devices. Attempts that are `building` occupy none.",
        "none",
        Query(f"sum by (stage) ({_device('kerneldyno_running_attempts')})", "{{stage}}"),
        Query(f"sum({_node('kerneldyno_running_builds')})", "building"),
        stacked=True,
        colours=STAGES,
    ),
    lines(
        "Runners",
        "Spare runners are warm; at 0 while attempts run, candidates wait for theirs.",
        "none",
        Query(f"sum by (instance, device) ({_device('kerneldyno_spare_runners')})", f"{_NAME} spare"),
        Query(f"sum by (instance, device) ({_device('kerneldyno_taken_runners')})", f"{_NAME} taken"),
        width=8,
    ),
    lines(
        "Judge restarts, an hour, by cause",
        "`judge` and `silent` are ours to look into; `reference` and `reference_timeout` are somebody's reference.",
        "none",
        Query(f"sum by (cause) (increase({_device('kerneldyno_judge_restarts_total')}[1h]))", "{{cause}}"),
        width=8,
    ),
    table(
        "Sandbox layers",
        "1 where the judge proved that the layer holds, 0 where it does not. Nodes of a fleet should agree.",
        "none",
        Query(f"min by (instance, device, layer) ({_device('kerneldyno_sandbox_layer_active')})", "holds"),
        by=("instance", "device", "layer"),
        width=8,
    ),
]

PROCESSES = [
    lines(
        "Processor",
        "Processors that the evaluator's server, its judges and its zygotes keep busy. Runners are not in it.",
        "none",
        Query(f"rate({_node('process_cpu_seconds_total')}{WINDOW})", "{{instance}} server"),
        Query(f"rate({_device('kerneldyno_child_cpu_seconds_total')}{WINDOW})", f"{_NAME} {{{{process}}}}"),
        width=8,
    ),
    lines(
        "Memory",
        "Resident memory of the same processes. A judge that only grows is leaking: say so.",
        "bytes",
        Query(_node("process_resident_memory_bytes"), "{{instance}} server"),
        Query(_device("kerneldyno_child_resident_memory_bytes"), f"{_NAME} {{{{process}}}}"),
        width=8,
    ),
    lines(
        "Event loop lag, p99",
        "How late the evaluator's event loop wakes up. Above 0.1 s the server is short of processor time.",
        "s",
        Query(quantile(0.99, _node("kerneldyno_event_loop_lag_seconds"), "instance"), "{{instance}}"),
        width=8,
    ),
]

GPU = [
    table(
        "Which GPUs",
        "Model, driver and UUID of each device.",
        "none",
        Query(f"max by (instance, device, model, driver_version, uuid) ({_gpu('info')})", "there"),
        by=("instance", "device", "model", "driver_version", "uuid"),
        height=5,
    ),
    lines(
        "Temperature",
        "Chip and memory, and the chip's temperature from which the driver lowers clocks.",
        "celsius",
        Query(_gpu("temperature_celsius"), f"{_NAME} {{{{sensor}}}}"),
        Query(f"min({_gpu('temperature_limit_celsius', limit='slowdown')})", "slowdown"),
        colours={"slowdown": "red"},
        width=8,
    ),
    lines(
        "Power",
        "Power drawn, and the limit at which the driver lowers clocks.",
        "watt",
        Query(_gpu("power_watts"), _NAME),
        Query(f"min({_gpu('power_limit_watts')})", "limit"),
        colours={"limit": "red"},
        width=8,
    ),
    lines(
        "Clocks",
        "Clocks now. Speedups compare a candidate with its reference, timed in turns; absolute times compare "
        "across days only where clocks do.",
        "hertz",
        Query(_gpu("clock_hertz"), f"{_NAME} {{{{clock}}}}"),
        width=8,
    ),
    lines(
        "Utilisation",
        "Share of the driver's last sampling period in which any kernel ran.",
        "percentunit",
        Query(_gpu("utilization_ratio"), _NAME),
        most=1,
        width=8,
    ),
    lines(
        "Device memory in use",
        "Share of the device's memory that is in use, by anybody. What stays when no attempt runs, beside "
        "spare runners, is a leak.",
        "percentunit",
        Query(f"{_gpu('memory_used_bytes')} / {_gpu('memory_bytes')}", _NAME),
        most=1,
        width=8,
    ),
    lines(
        "Clocks held down",
        "1 while the driver holds clocks down for a reason, and the share of timings around which it did.",
        "none",
        Query(f"max by (instance, device, reason) ({_gpu('throttled')})", f"{_NAME} {{{{reason}}}}"),
        Query(
            share(_device("kerneldyno_throttled_timings_total"), _node("kerneldyno_timings_total")), "share of timings"
        ),
        width=8,
    ),
]

FAULTS = [
    lines(
        "Xid errors, an hour",
        "What the driver reported. 13, 31, 43, 45 and 94 are a candidate's most likely; all others are the GPU's.",
        "none",
        Query(f"sum by (instance, device, xid) (increase({_gpu('xid_errors_total')}[1h]))", f"{_NAME} Xid {{{{xid}}}}"),
        width=8,
    ),
    lines(
        "ECC errors, an hour",
        "Memory errors. Corrected ones are a wear sign; an uncorrected one has spoiled somebody's numbers.",
        "none",
        Query(f"increase({_gpu('ecc_errors_total')}[1h])", f"{_NAME} {{{{severity}}}}"),
        width=8,
    ),
    lines(
        "Rows replaced",
        "Rows of memory replaced over the GPU's life; `pending` waits for a reset, `failed` is a GPU to be exchanged.",
        "none",
        Query(_gpu("remapped_rows"), f"{_NAME} {{{{severity}}}}"),
        Query(_gpu("row_remap_pending"), f"{_NAME} pending"),
        Query(_gpu("row_remap_failed"), f"{_NAME} failed"),
        width=8,
    ),
]

BOARD = board(
    "kerneldyno-node",
    "KernelDyno / Node and GPU",
    "One node or some: devices, runners, processes, walls, and what the driver says about the GPUs.",
    [("Now", NOW), ("Work", WORK), ("Processes", PROCESSES), ("GPU", GPU), ("GPU faults", FAULTS)],
    variables=VARIABLES,
)
