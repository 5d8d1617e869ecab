"""What all boards share: their variables, and panels in a few words.

In a query $C stands for the matcher of the chosen clusters, $M for the one of
vLLM's series, $I for Grafana's rate interval.
"""

from grafana_foundation_sdk.builders import (
    common as common_builders, dashboard, heatmap, prometheus, stat,
    statetimeline, timeseries)
from grafana_foundation_sdk.models import common
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models import heatmap as heatmap_models
from grafana_foundation_sdk.models import prometheus as prometheus_models

_SOURCE = models.DataSourceRef(type_val="prometheus", uid="${datasource}")
_WORDS = {"$C": 'cluster=~"$cluster"',
          "$M": 'cluster=~"$cluster",model_name=~"$model_name"',
          "$I": "[$__rate_interval]"}


def quantile(share, name, matcher, *by):
    """The query for a quantile of a histogram, per labels `by`."""
    labels = ", ".join((*by, "le"))
    return (f"histogram_quantile({share}, sum by ({labels}) "
            f"(rate({name}_bucket{{{matcher}}}$I)))")


def mean(name, matcher, *by):
    """The query for a histogram's mean, per labels `by`."""
    def total(kind):
        return (f"sum by ({', '.join(by)}) "
                f"(rate({name}_{kind}{{{matcher}}}$I))")
    return f"{total('sum')} / {total('count')}"


def latency(name, matcher="$M"):
    """The queries for a latency panel: quantiles and the mean."""
    found = [(quantile(share, name, matcher), label) for share, label in
             ((0.5, "P50"), (0.9, "P90"), (0.95, "P95"), (0.99, "P99"))]
    return found + [(mean(name, matcher), "mean")]


def _query(expr, legend, kind="time_series"):
    for word, text in _WORDS.items():
        expr = expr.replace(word, text)
    return (prometheus.Dataquery().expr(expr).legend_format(legend)
            .format(prometheus_models.PromQueryFormat(kind)))


def _finish(panel, title, queries, about, size, kind="time_series"):
    width, height = size
    panel = (panel.title(title).datasource(_SOURCE).span(width).height(height))
    if about:
        panel = panel.description(about)
    for at, (expr, legend) in enumerate(queries):
        panel = panel.with_target(
            _query(expr, legend, kind).ref_id(chr(ord("A") + at)))
    return panel


def graph(title, unit, *queries, about="", stacked=False, limits=None,
          size=(8, 7)):
    """Lines over time; `limits`: (min, max) of the axis, either may be
    None."""
    panel = timeseries.Panel().unit(unit).legend(
        common_builders.VizLegendOptions()
        .display_mode(common.LegendDisplayMode.LIST)
        .placement(common.LegendPlacement.BOTTOM).show_legend(True)
    ).tooltip(
        common_builders.VizTooltipOptions()
        .mode(common.TooltipDisplayMode.MULTI)
        .sort(common.SortOrder.DESCENDING)
    ).line_width(1).fill_opacity(10)
    low, high = limits or (0, None)
    if low is not None:
        panel = panel.min(low)
    if high is not None:
        panel = panel.max(high)
    if stacked:
        panel = panel.fill_opacity(60).stacking(
            common_builders.StackingConfig()
            .mode(common.StackingMode.NORMAL).group("A"))
    return _finish(panel, title, queries, about, size)


def number(title, unit, expr, legend="", about="", steps=None, size=(4, 4)):
    """The latest value; `steps`: [(from, colour)], the first from None."""
    panel = stat.Panel().unit(unit).reduce_options(
        common_builders.ReduceDataOptions().calcs(["lastNotNull"])
    ).color_mode(common.BigValueColorMode.VALUE).graph_mode(
        common.BigValueGraphMode.AREA)
    if steps:
        panel = panel.thresholds(
            dashboard.ThresholdsConfig()
            .mode(models.ThresholdsMode.ABSOLUTE)
            .steps([models.Threshold(value=value, color=colour)
                    for value, colour in steps]))
    return _finish(panel, title, [(expr, legend)], about, size)


def buckets(title, unit, name, matcher="$M", about="", size=(12, 8)):
    """A histogram's buckets over time, as a heatmap."""
    panel = heatmap.Panel().calculate(False).y_axis(
        heatmap.YAxisConfig().unit(unit)).color(
        heatmap.HeatmapColorOptions().scheme("Spectral").steps(64)
        .mode(heatmap_models.HeatmapColorMode.SCHEME))
    query = (f"sum by (le) (increase({name}_bucket{{{matcher}}}$I))", "{{le}}")
    return _finish(panel, title, [query], about, size, "heatmap")


def cells(title, unit, expr, legend, about="", size=(12, 8)):
    """A heatmap with a row for each series."""
    panel = heatmap.Panel().calculate(False).y_axis(
        heatmap.YAxisConfig()).cell_values(
        heatmap.CellValues().unit(unit)).color(
        heatmap.HeatmapColorOptions().scheme("Oranges").steps(64)
        .mode(heatmap_models.HeatmapColorMode.SCHEME))
    return _finish(panel, title, [(expr, legend)], about, size)


def states(title, expr, legend, names, about="", size=(12, 7)):
    """Coloured bars over time; `names`: {value: (text, colour)}."""
    options = {str(value): models.ValueMappingResult(
        text=text, color=colour, index=at)
        for at, (value, (text, colour)) in enumerate(names.items())}
    panel = statetimeline.Panel().mappings(
        [models.ValueMap(options=options)]).merge_values(True).line_width(
        0).fill_opacity(70)
    return _finish(panel, title, [(expr, legend)], about, size)


def row(title):
    return dashboard.Row(title)


def board(name, title, about, panels, model_names=False):
    """A board of `panels`, in reading order; rows among them."""
    made = (dashboard.Dashboard(title).uid(f"sluice-{name}")
            .description(about).tags(["sluice"]).editable()
            .time("now-30m", "now").refresh("10s").timezone("browser")
            .tooltip(models.DashboardCursorSync.CROSSHAIR)
            .link(dashboard.DashboardLink("Sluice")
                  .type(models.DashboardLinkType.DASHBOARDS)
                  .tags(["sluice"]).as_dropdown(False).keep_time(True)
                  .include_vars(True)))
    variables = [dashboard.DatasourceVariable("datasource")
                 .label("Data source").type("prometheus")]
    wanted = [("cluster", "label_values(sluice_build_info, cluster)")]
    if model_names:
        wanted.append(("model_name", "label_values("
                       "vllm:num_requests_running, model_name)"))
    for label, query in wanted:
        variables.append(
            dashboard.QueryVariable(label).label(label.replace("_", " "))
            .datasource(_SOURCE).query(query)
            .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
            .multi(True).include_all(True).all_value(".*")
            .current(models.VariableOption(selected=True, text="All",
                                           value="$__all")))
    for variable in variables:
        made = made.with_variable(variable)
    for number_of, panel in enumerate(panels, 1):
        panel = panel.id(number_of)
        made = (made.with_row(panel) if isinstance(panel, dashboard.Row)
                else made.with_panel(panel))
    return made
