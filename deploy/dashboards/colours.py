"""One colour for each outcome on every dashboard: green is right, purple is cheating, blue and grey are ours to mend."""

OUTCOMES = {
    "CORRECT": "green",
    "INCORRECT": "orange",
    "COMPILE_ERROR": "yellow",
    "RUNTIME_ERROR": "red",
    "TIMEOUT": "dark-orange",
    "OUT_OF_MEMORY": "dark-yellow",
    "REJECTED": "purple",
    "INVALID": "light-orange",
    "REFERENCE_ERROR": "blue",
    "PROBLEM_TOO_LARGE": "light-blue",
    "INFRASTRUCTURE_ERROR": "dark-blue",
}
STAGES = {
    "building": "light-yellow",
    "awaiting_memory": "dark-red",
    "preparing": "blue",
    "loading": "light-blue",
    "compiling": "yellow",
    "checking": "green",
    "awaiting_lease": "red",
    "timing": "purple",
    "profiling": "orange",
}
