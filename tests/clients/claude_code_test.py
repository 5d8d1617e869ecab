"""Claude Code, unmodified, over /v1/messages: a task finished while a stage is
killed, and a prompt that is too long (long mode)."""

import unittest

import agent_case
from agent_model import call, script
import harness

PROGRAM = agent_case.BIN / "claude"
agent_case.needs(PROGRAM)


class ClaudeCodeTest(agent_case.AgentCase):
    def test_a_task_is_finished_while_a_stage_is_killed(self):
        file = str(self.work / "calc.py")
        self.finish_task(script(tool="Edit", steps=[
            agent_case.LOOKS + call("Read", file_path=file),
            agent_case.REPAIRS + call("Edit", file_path=file,
                                      old_string="a - b", new_string="a + b"),
            agent_case.CHECKS + call("Bash", command=agent_case.CHECKING),
            agent_case.DONE]), self.command)

    def test_it_asks_again_until_it_is_served(self):
        for trouble in (agent_case.Full, agent_case.Lost):
            with self.subTest(trouble=trouble.__name__):
                self.setUp()
                file = str(self.work / "calc.py")
                self.finish_though_refused(
                    agent_case.repairing(
                        "Edit", call("Read", file_path=file),
                        call("Edit", file_path=file, old_string="a - b",
                             new_string="a + b")), self.command, trouble)

    def test_it_reads_that_a_prompt_is_too_long(self):
        text, status = self.run_on_default_model(self.command)
        self.assertNotEqual(status, 0)
        self.assertIn("Prompt is too long", text)

    def command(self, cluster):
        # It asks for the models of its own names.
        return [PROGRAM, "-p", agent_case.TASK, "--permission-mode",
                "acceptEdits", "--allowedTools", "Bash,Edit,Read"], {
            "ANTHROPIC_BASE_URL": cluster.url, "ANTHROPIC_AUTH_TOKEN": "none"}


if __name__ == "__main__":
    harness.main()
