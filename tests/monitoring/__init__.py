"""Tests of dashboards and alerts with a real Prometheus that scrapes real services."""
