"""Grafana's dashboards as code: `python -m deploy.dashboards` writes the JSON that Grafana reads."""
