"""deploy/examples as a test's cluster has them: its address in the place of the
written one. The cluster's model answers to the examples' name."""

import pathlib

from client_cluster import ANSWER, run_client
import harness

FOLDER = harness.ROOT / "deploy" / "examples"
URL = "http://127.0.0.1:8080"
QUESTION = "Name the capital of France."


def text_of(name, cluster):
    """The file's text with the cluster's address."""
    text = (FOLDER / name).read_text()
    if URL not in text:
        raise AssertionError(f"deploy/examples/{name} has no {URL}")
    return text.replace(URL, cluster.url)


def write(name, cluster, folder):
    """Writes that text to `folder`; the file's path."""
    path = pathlib.Path(folder) / pathlib.Path(name).name
    path.write_text(text_of(name, cluster))
    return path


def run(case, cluster, *command, environment=None):
    """What a program prints whose answer must hold ANSWER."""
    done = run_client(command, cluster, 600, environment)
    case.assertIn(ANSWER, done.stdout)
    return done.stdout
