"""Grafana's dashboards as code: `python -m dashboards` writes the JSON that Grafana reads."""
