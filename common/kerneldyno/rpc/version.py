"""The version, here and nowhere else: wheel, capabilities, environments, metrics and images all take it from here."""

from __future__ import annotations

VERSION = "0.1.0"
