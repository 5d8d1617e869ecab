"""The queries of deploy/monitoring, and the series that they name."""

import json
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = ROOT / "deploy" / "monitoring"
RULE_FILES = ("rules.yaml", "alerts.yaml")

_OURS = r"(?:vllm:|sluice[_:]|process_|grpc_|http_)[\w:]+"
GPU = ("sluice_stage_gpu_", "sluice_expert_gpu_")
# Prometheus' own.
OWN = {"up"}


def boards():
    """{file name: board} of every committed board."""
    return {path.name: json.loads(path.read_text())
            for path in sorted((FOLDER / "grafana").glob("*.json"))}


def panels(board):
    """The board's panels that show something, those in rows too."""
    for panel in board["panels"]:
        yield from panels(panel) if panel.get("panels") else ()
        if panel["type"] != "row":
            yield panel


def queries(interval="1m"):
    """(board, panel's title, query) of every target, with Grafana's variables
    as "All" and `interval` have them."""
    for name, board in boards().items():
        for panel in panels(board):
            for target in panel["targets"]:
                expr = target["expr"].replace("$__rate_interval", interval)
                yield name, panel["title"], re.sub(r"\$(cluster|model_name)",
                                                   ".*", expr)


def variable_series():
    """Names in the queries of the boards' variables."""
    for board in boards().values():
        for variable in board["templating"]["list"]:
            yield from re.findall(_OURS, str(variable.get("query", "")))


def rules_text():
    """Both rule files, without comments."""
    text = "\n".join((FOLDER / name).read_text() for name in RULE_FILES)
    return re.sub(r"(?m)^\s*#.*$", "", text)


def recorded():
    """Names that the recording rules make."""
    return set(re.findall(r"record: (\S+)", rules_text()))


def without_texts(expr):
    """The query without what stands between quotes."""
    return re.sub(r'"[^"]*"', '""', expr)


def names(expr):
    """Names of series in a query, as they are scraped."""
    return set(re.findall(rf"\b(?:{_OURS}|up)\b", without_texts(expr)))


def selectors(expr):
    """Every series of a query with its matchers, alone: name{...}."""
    return set(re.findall(rf"\b(?:{_OURS}|up)(?:\{{[^}}]*\}})?", expr))


def needs_gpu(query):
    """Whether only a process on a GPU has what the query asks for."""
    return any(name.startswith(GPU) for name in names(query))


def page_names():
    """{name: type} of services/METRICS.md."""
    page = (ROOT / "services" / "METRICS.md").read_text()
    return dict(re.findall(r"(?m)^\| `([\w:]+)` \| (\w+) \|", page))


def listed(name, page):
    """Whether the page has a scraped name: a histogram's parts by its own."""
    if page.get(name) in ("counter", "gauge"):
        return True
    base = re.sub("_(bucket|sum|count)$", "", name)
    return base != name and page.get(base) == "histogram"
