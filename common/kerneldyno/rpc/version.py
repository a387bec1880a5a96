"""The version, defined only here: wheel, capabilities, environments, metrics and images all read it."""

from __future__ import annotations

VERSION = "0.1.0"
