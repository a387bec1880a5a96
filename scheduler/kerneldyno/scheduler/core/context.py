"""What all parts of the state machine share: settings, and the injected sources of time, tokens and durability."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kerneldyno.scheduler.clock import Clock
from kerneldyno.scheduler.core.observer import Observers
from kerneldyno.scheduler.core.ports import Journal, Store
from kerneldyno.scheduler.settings import Settings


@dataclass(frozen=True, slots=True)
class Context:
    """The shared surroundings of the parts of one state machine."""

    settings: Settings
    clock: Clock
    new_token: Callable[[], str]
    """Returns a new unique attempt token."""
    store: Store
    """Answers requests for what is no longer in memory."""
    journal: Journal
    """Makes records durable."""
    observers: Observers
