#!/usr/bin/env python3
"""Writes prometheus-rule.yaml, the groups of rules.yaml and alerts.yaml as one
object of the Prometheus Operator.

usage: prometheus_rule.py [--check]
  --check  writes nothing; fails if the file is another one"""

import pathlib
import sys

FOLDER = pathlib.Path(__file__).resolve().parent
HEAD = """\
# Made by prometheus_rule.py of rules.yaml and alerts.yaml.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: sluice
  labels:
    app.kubernetes.io/name: sluice
spec:
  groups:
"""


def groups(name):
    """The lines of a file's groups."""
    text = (FOLDER / name).read_text()
    return text.partition("\ngroups:\n")[2].splitlines()


def made():
    lines = [*groups("rules.yaml"), "", *groups("alerts.yaml")]
    return HEAD + "".join(f"  {line}".rstrip() + "\n" for line in lines)


def main():
    path = FOLDER / "prometheus-rule.yaml"
    if sys.argv[1:] == ["--check"]:
        if path.read_text() != made():
            sys.exit(f"{path} is not what {__file__} makes: run it")
    elif sys.argv[1:]:
        sys.exit(__doc__)
    else:
        path.write_text(made())


if __name__ == "__main__":
    main()
