"""Continue's command line, unmodified: a task finished while a stage is killed
(long mode)."""

import unittest

import agent_case
from agent_model import call, script
import harness

PROGRAM = agent_case.BIN / "cn"
agent_case.needs(PROGRAM)
CONFIG = """\
name: Sluice
version: 1.0.0
schema: v1
models:
  - name: Sluice
    provider: openai
    model: sluice
    apiBase: {}/v1
    apiKey: none
    roles: [chat, edit, apply]
    defaultCompletionOptions:
      contextLength: 65536
      maxTokens: 8192
"""


class ContinueTest(agent_case.AgentCase):
    def test_a_task_is_finished_while_a_stage_is_killed(self):
        file = str(self.work / "calc.py")
        self.finish_task(script(tool="Edit", steps=[
            agent_case.LOOKS + call("Read", filepath=file),
            agent_case.REPAIRS + call("Edit", file_path=file,
                                      old_string="a - b", new_string="a + b"),
            agent_case.CHECKS + call("Bash", command=agent_case.CHECKING),
            agent_case.DONE]), self.command)

    def command(self, cluster):
        config = self.home / "config.yaml"
        config.write_text(CONFIG.format(cluster.url))
        return [PROGRAM, "--config", config, "--auto", "-p", agent_case.TASK], {
            "CONTINUE_TELEMETRY_ENABLED": "0"}


if __name__ == "__main__":
    harness.main()
