"""The few kinds of panel that our dashboards are made of, and how they are put together.

Every panel has a title, a unit, a description that says how to read it, and queries. Widths and heights are Grafana's
grid units: 24 fill a row. The types and builders are those of Grafana's own SDK, for the version that it is pinned to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from grafana_foundation_sdk.builders import common as build_common
from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.builders.heatmap import HeatmapColorOptions, YAxisConfig
from grafana_foundation_sdk.builders.heatmap import Panel as HeatmapPanel
from grafana_foundation_sdk.builders.prometheus import Dataquery
from grafana_foundation_sdk.builders.stat import Panel as StatPanel
from grafana_foundation_sdk.builders.table import Panel as TablePanel
from grafana_foundation_sdk.builders.timeseries import Panel as TimeseriesPanel
from grafana_foundation_sdk.models import common, dashboard
from grafana_foundation_sdk.models.heatmap import HeatmapColorMode
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

#: Chosen at the top of each dashboard, so that the JSON fits any Grafana.
DATASOURCE = dashboard.DataSourceRef(type_val="prometheus", uid="${datasource}")
#: By which the dashboards find each other, for the links at their top.
TAG = "kerneldyno"

Panel = TimeseriesPanel | StatPanel | HeatmapPanel | TablePanel
P = TypeVar("P", TimeseriesPanel, StatPanel, HeatmapPanel, TablePanel)
Steps = Sequence[tuple[float | None, str]]


@dataclass(frozen=True)
class Query:
    """A PromQL expression, and the name of its series: `{{label}}` is replaced by the label's value."""

    expr: str
    legend: str = ""


@dataclass(frozen=True)
class Variable:
    """A choice at the top of a dashboard: the values of a label of `metric`. More than one, and all, can be chosen."""

    name: str
    label: str
    metric: str
    text: str


def lines(
    title: str,
    description: str,
    unit: str,
    *queries: Query,
    width: int = 12,
    height: int = 8,
    stacked: bool = False,
    colours: dict[str, str] | None = None,
    most: float | None = None,
) -> Panel:
    """Values over time. `colours` are by legend; the axis begins at 0."""
    panel = TimeseriesPanel().span(width).height(height).line_width(1.5).fill_opacity(60 if stacked else 8)
    panel = panel.show_points(common.VisibilityMode.NEVER).axis_soft_min(0)
    legend = build_common.VizLegendOptions().display_mode(common.LegendDisplayMode.TABLE).show_legend(True)
    panel = panel.legend(legend.placement(common.LegendPlacement.BOTTOM).calcs(["lastNotNull", "max"]))
    tooltip = build_common.VizTooltipOptions().mode(common.TooltipDisplayMode.MULTI)
    panel = panel.tooltip(tooltip.sort(common.SortOrder.DESCENDING))
    if stacked:
        panel = panel.stacking(build_common.StackingConfig().mode(common.StackingMode.NORMAL).group("A"))
    if most is not None:
        panel = panel.max(most)
    for name, colour in (colours or {}).items():
        fixed = {"mode": "fixed", "fixedColor": colour}
        panel = panel.override_by_name(name, [dashboard.DynamicConfigValue("color", fixed)])
    return _filled(panel, title, description, unit, queries)


def number(
    title: str,
    description: str,
    unit: str,
    query: Query,
    *,
    steps: Steps = ((None, "blue"),),
    width: int = 4,
    height: int = 4,
) -> Panel:
    """One number, the newest, with its course behind it. `steps`: from which value on which colour; the first has None."""
    panel = StatPanel().span(width).height(height).thresholds(_thresholds(steps))
    panel = panel.graph_mode(common.BigValueGraphMode.AREA).color_mode(common.BigValueColorMode.VALUE)
    panel = panel.reduce_options(build_common.ReduceDataOptions().calcs(["lastNotNull"]).values(False))
    return _filled(panel, title, description, unit, [query])


def heat(title: str, description: str, unit: str, query: Query, *, width: int = 12, height: int = 8) -> Panel:
    """A histogram over time. `query` gives the growth of each bucket, `sum by (le)`."""
    panel = HeatmapPanel().span(width).height(height).calculate(False).hide_y_histogram()
    panel = panel.color(HeatmapColorOptions().mode(HeatmapColorMode.SCHEME).scheme("Blues").steps(64))
    panel = panel.y_axis(YAxisConfig().unit(unit))
    return _filled(panel, title, description, unit, [query], form=PromQueryFormat.HEATMAP)


def table(
    title: str, description: str, unit: str, *columns: Query, by: Sequence[str], width: int = 24, height: int = 8
) -> Panel:
    """The present, one row for each combination of the labels `by`; a column for each query, named by its legend."""
    panel = TablePanel().span(width).height(height)
    kept = {label: index for index, label in enumerate(by)}
    refs = [chr(ord("A") + index) for index in range(len(columns))]
    names = {f"Value #{ref}": column.legend for ref, column in zip(refs, columns, strict=True)}
    if len(columns) == 1:
        names["Value"] = columns[0].legend
    panel = panel.with_transformation(dashboard.DataTransformerConfig(id_val="merge", options={}))
    organised = {"excludeByName": {"Time": True}, "indexByName": kept, "renameByName": names}
    panel = panel.with_transformation(dashboard.DataTransformerConfig(id_val="organize", options=organised))
    return _filled(panel, title, description, unit, columns, form=PromQueryFormat.TABLE)


def board(
    uid: str,
    title: str,
    description: str,
    rows: Sequence[tuple[str, Sequence[Panel]]],
    *,
    variables: Sequence[Variable] = (),
) -> dashboard.Dashboard:
    """A dashboard of titled rows of panels. Ids are given in reading order."""
    made = build.Dashboard(title).uid(uid).description(description).tags([TAG]).readonly()
    made = (
        made.time("now-1h", "now").refresh("30s").timezone("browser").tooltip(dashboard.DashboardCursorSync.CROSSHAIR)
    )
    links = build.DashboardLink("KernelDyno").type(dashboard.DashboardLinkType.DASHBOARDS).tags([TAG])
    made = made.link(links.as_dropdown(True).keep_time(True))
    made = made.with_variable(build.DatasourceVariable("datasource").label("Prometheus").type("prometheus"))
    for variable in variables:
        made = made.with_variable(_variable(variable))
    number = 0
    for heading, panels in rows:
        number += 1
        made = made.with_row(build.Row(heading).id(number))
        for panel in panels:
            number += 1
            made = made.with_panel(panel.id(number))
    return made.build()


def _variable(variable: Variable) -> build.QueryVariable:
    query = f"label_values({variable.metric}, {variable.label})"
    made = build.QueryVariable(variable.name).label(variable.text).datasource(DATASOURCE).query(query)
    made = made.refresh(dashboard.VariableRefresh.ON_TIME_RANGE_CHANGED).sort(dashboard.VariableSort.ALPHABETICAL_ASC)
    everything = dashboard.VariableOption(selected=True, text="All", value="$__all")
    return made.multi(True).include_all(True).all_value(".+").current(everything)


def _thresholds(steps: Steps) -> build.ThresholdsConfig:
    made = [dashboard.Threshold(value=value, color=colour) for value, colour in steps]
    return build.ThresholdsConfig().mode(dashboard.ThresholdsMode.ABSOLUTE).steps(made)


def _filled(
    panel: P,
    title: str,
    description: str,
    unit: str,
    queries: Sequence[Query],
    form: PromQueryFormat = PromQueryFormat.TIME_SERIES,
) -> P:
    panel.title(title).description(description).unit(unit).datasource(DATASOURCE)
    for index, query in enumerate(queries):
        made = Dataquery().expr(query.expr).format(form).ref_id(chr(ord("A") + index)).datasource(DATASOURCE)
        made = made.instant() if form is PromQueryFormat.TABLE else made.range()
        panel.with_target(made.legend_format(query.legend or "__auto"))
    return panel
