"""Writes the boards of deploy/monitoring/grafana from code.

usage: python3 deploy/monitoring/dashboards [--check]

Needs Grafana's Foundation SDK (tests/requirements.txt). --check
writes nothing and ends with 1 if a committed board differs.
"""

import json
import pathlib
import sys

from grafana_foundation_sdk.cog.encoder import JSONEncoder

import experts
import machine
import pipeline
import service

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "grafana"


def texts():
    """{file name: JSON} of every board, as they are committed."""
    made = {}
    for room in (service, pipeline, experts, machine):
        text = JSONEncoder(sort_keys=True, indent=1).encode(
            room.make().build())
        made[f"{room.__name__}.json"] = json.dumps(
            json.loads(text), indent=1, sort_keys=True) + "\n"
    return made


def main(arguments):
    if arguments not in ([], ["--check"]):
        print(__doc__, file=sys.stderr)
        return 2
    made = texts()
    have = {path.name: path.read_text() for path in FOLDER.glob("*.json")}
    if arguments:
        stale = sorted(name for name in made.keys() | have.keys()
                       if made.get(name) != have.get(name))
        for name in stale:
            print(f"{FOLDER / name} is not what the code makes: run "
                  "python3 deploy/monitoring/dashboards")
        return 1 if stale else 0
    FOLDER.mkdir(exist_ok=True)
    for name, text in made.items():
        (FOLDER / name).write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
