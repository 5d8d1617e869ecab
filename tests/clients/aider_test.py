"""aider, unmodified: a task finished while a stage is killed (long mode)."""

import unittest

import agent_case
from agent_model import script
import harness

PROGRAM = harness.ROOT / "build" / "venv-aider" / "bin" / "aider"
agent_case.needs(PROGRAM)
# It asks for edits in the text, and runs the check by itself.
EDIT = """

calc.py
```python
{} SEARCH
    return a - b
{}
    return a + b
{} REPLACE
```
""".format("<" * 7, "=" * 7, ">" * 7)


class AiderTest(agent_case.AgentCase):
    def test_a_task_is_finished_while_a_stage_is_killed(self):
        self.finish_task(script(says="SEARCH/REPLACE", steps=[
            agent_case.REPAIRS + EDIT + "\n" + agent_case.DONE]), self.command)

    def command(self, cluster):
        return [PROGRAM, "--model", "openai/sluice", "--edit-format", "diff",
                "--no-git", "--yes-always", "--no-check-update",
                "--analytics-disable", "--no-show-model-warnings",
                "--no-fancy-input", "--no-pretty", "--auto-test", "--test-cmd",
                agent_case.CHECKING, "--message", agent_case.TASK,
                "calc.py"], {
            "OPENAI_API_BASE": cluster.url + "/v1", "OPENAI_API_KEY": "none"}


if __name__ == "__main__":
    harness.main()
