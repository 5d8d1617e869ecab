#!/usr/bin/env python3
"""Draws panels of the boards from a running Prometheus as one SVG, where there
is no Grafana to render them.

usage: deploy/monitoring/picture.py http://127.0.0.1:9090 OUT.svg [SECONDS]

SECONDS: how far back, 120 by default.
"""

import html
import json
import math
import pathlib
import re
import sys
import time
import urllib.parse
import urllib.request

GRAFANA = pathlib.Path(__file__).resolve().parent / "grafana"
# (board, panel's title), in reading order.
PANELS = [("service", "Tokens per second"), ("service", "End to end"),
          ("service", "Between tokens"), ("service", "Answers"),
          ("pipeline", "One step, by stage and part"), ("pipeline", "Busy"),
          ("pipeline", "Hop"), ("pipeline", "The gateway's view"),
          ("experts", "Rows per second"), ("experts", "Trip"),
          ("experts", "Batches"), ("machine", "Cores")]
COLUMNS, WIDTH, HEIGHT, LINE = 4, 300, 206, 12
LEFT, TOP, PLOT = 44, 24, 120  # within a panel; PLOT: the plot's height
COLOURS = ["#2563eb", "#d97706", "#059669", "#dc2626", "#7c3aed", "#0891b2",
           "#65a30d", "#db2777", "#475569", "#ca8a04"]
INTERVAL = "8s"  # of rates: some scrapes of a second each


def panel_of(board, title):
    """The graph of a board; SystemExit if there is none."""
    panels = json.loads((GRAFANA / f"{board}.json").read_text())["panels"]
    found = [one for one in panels if one.get("title") == title
             and one["type"] == "timeseries"]
    if not found:
        raise SystemExit(f"board {board} has no graph '{title}'")
    return found[0]


def legend(text, labels):
    return re.sub(r"\{\{(\w+)\}\}", lambda m: labels.get(m[1], ""),
                  text).strip()


def lines_of(panel, url, begin, end):
    """[(legend, [(time, value)])] of the panel's queries."""
    lines = []
    for target in panel["targets"]:
        expr = target["expr"].replace("$__rate_interval", INTERVAL)
        query = urllib.parse.urlencode(
            {"query": re.sub(r"\$(cluster|model_name)", ".*", expr),
             "start": begin, "end": end, "step": 1})
        with urllib.request.urlopen(f"{url}/api/v1/query_range?{query}",
                                    timeout=30) as answer:
            result = json.load(answer)["data"]["result"]
        for one in result:
            points = [(at, float(value)) for at, value in one["values"]
                      if math.isfinite(float(value))]
            if points:
                lines.append((legend(target["legendFormat"], one["metric"]),
                              points))
    return lines


def stacked(lines):
    """The same with each line upon those before; a missing value is none."""
    out, total = [], {}
    for name, points in lines:
        below = dict(total)
        for at, value in points:
            total[at] = total.get(at, 0.0) + value
        out.append((name, [(at, total[at]) for at, _ in points],
                    [(at, below.get(at, 0.0)) for at, _ in points]))
    return out


def with_unit(value, unit):
    if unit == "percentunit":
        return f"{100 * value:.3g} %"
    if unit == "s":
        for factor, name in ((1, "s"), (1e3, "ms"), (1e6, "µs")):
            if value * factor >= 1 or name == "µs":
                return f"{value * factor:.3g} {name}"
    for factor, name in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if value >= factor:
            return f"{value / factor:.3g}{name}"
    return f"{value:.3g}"


def runs(points):
    """The points in runs without a gap above two seconds."""
    found = []
    for point in points:
        if not found or point[0] - found[-1][-1][0] > 2:
            found.append([])
        found[-1].append(point)
    return found


def draw_panel(panel, lines, corner, begin, end):
    """SVG of one panel at `corner`."""
    custom = panel["fieldConfig"]["defaults"].get("custom", {})
    unit = panel["fieldConfig"]["defaults"].get("unit", "none")
    stack = custom.get("stacking", {}).get("mode") == "normal"
    drawn = (stacked(lines) if stack
             else [(name, points, None) for name, points in lines])
    top = max((value for _, points, _ in drawn for _, value in points),
              default=0) or 1.0
    x0, y0 = corner

    def place(point):
        x = x0 + LEFT + (WIDTH - LEFT - 8) * (point[0] - begin) / (end - begin)
        return f"{x:.0f},{y0 + TOP + PLOT * (1 - point[1] / top):.1f}"
    parts = [f'<text x="{x0 + 4}" y="{y0 + 15}" font-weight="bold">'
             f'{html.escape(panel["title"])}</text>']
    for share in (0, 0.5, 1):
        y = y0 + TOP + PLOT * (1 - share)
        parts.append(f'<path d="M{x0 + LEFT},{y}H{x0 + WIDTH - 8}" '
                     'stroke="#ddd"/>'
                     f'<text x="{x0 + LEFT - 4}" y="{y + 3}" '
                     f'text-anchor="end">{with_unit(share * top, unit)}</text>')
    for at, (_, points, below) in reversed(list(enumerate(drawn))):
        colour = COLOURS[at % len(COLOURS)]
        for run in runs(points):
            line = " ".join(map(place, run))
            if below is None:
                parts.append(f'<polyline points="{line}" fill="none" '
                             f'stroke="{colour}"/>')
                continue
            times = {when for when, _ in run}
            base = [one for one in below if one[0] in times]
            back = " ".join(map(place, reversed(base)))
            parts.append(f'<polygon points="{line} {back}" fill="{colour}" '
                         'fill-opacity="0.7"/>')
    for at, (name, _, _) in enumerate(drawn[:10]):
        x = x0 + 8 + (at % 2) * (WIDTH // 2)
        y = y0 + TOP + PLOT + 16 + (at // 2) * LINE
        parts.append(f'<text x="{x}" y="{y}" '
                     f'fill="{COLOURS[at % len(COLOURS)]}">'
                     f'{html.escape(name)}</text>')
    return "".join(parts)


def draw(url, seconds):
    """The SVG of all panels."""
    end = time.time()
    begin = end - seconds
    rows = -(-len(PANELS) // COLUMNS)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" '
             f'width="{COLUMNS * WIDTH}" height="{rows * HEIGHT}" '
             'font-family="sans-serif" font-size="9">'
             '<rect width="100%" height="100%" fill="white"/>']
    for at, (board, title) in enumerate(PANELS):
        panel = panel_of(board, title)
        corner = at % COLUMNS * WIDTH, at // COLUMNS * HEIGHT
        parts.append(draw_panel(panel, lines_of(panel, url, begin, end),
                                corner, begin, end))
    return "\n".join(parts) + "</svg>\n"


def main(arguments):
    if len(arguments) not in (2, 3):
        print(__doc__, file=sys.stderr)
        return 2
    seconds = int(arguments[2]) if len(arguments) == 3 else 120
    pathlib.Path(arguments[1]).write_text(
        draw(arguments[0].rstrip("/"), seconds))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
