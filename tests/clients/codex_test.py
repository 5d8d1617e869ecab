"""Codex, unmodified, over /v1/responses: tasks finished while a stage is killed, a
call of a namespace, and a prompt that is too long (long mode)."""

import unittest

import agent_case
from agent_model import ScriptedCluster, call, script
import harness

PROGRAM = agent_case.BIN / "codex"
agent_case.needs(PROGRAM)
KNOWN_NAME = "gpt-5.5"  # of a model to which Codex offers apply_patch
PATCH = """\
*** Begin Patch
*** Update File: calc.py
@@
 def add(a, b):
-    return a - b
+    return a + b
*** End Patch
"""


def shell(command):
    return call("exec_command", cmd=command)


class CodexTest(agent_case.AgentCase):
    def test_a_task_is_finished_while_a_stage_is_killed(self):
        self.finish_task(script(tool="exec_command", steps=[
            agent_case.LOOKS + shell("cat calc.py"),
            agent_case.REPAIRS + shell("sed -i 's/a - b/a + b/' calc.py"),
            agent_case.CHECKS + shell(agent_case.CHECKING),
            agent_case.DONE]), self.command)

    def test_a_patch_is_a_call_of_a_custom_tool(self):
        self.finish_task(script(tool="exec_command", steps=[
            agent_case.LOOKS + shell("cat calc.py"),
            agent_case.REPAIRS + call("apply_patch", input=PATCH),
            agent_case.CHECKS + shell(agent_case.CHECKING),
            agent_case.DONE]),
            lambda cluster: self.command(cluster, KNOWN_NAME))

    def test_a_call_of_a_namespace_is_one_that_it_knows(self):
        refused = script(tool="exec_command", says="unsupported call",
                         steps=["It knows no such call."])
        closes = script(tool="exec_command", steps=[
            call("multi_agent_v1__close_agent", target="none"),
            agent_case.DONE])
        with ScriptedCluster([refused, closes]) as cluster:
            text, status = self.run_agent(*self.command(cluster))
        self.assertEqual(status, 0, text)
        self.assertIn(agent_case.DONE, text)

    def test_it_asks_again_until_it_is_served(self):
        for trouble in (agent_case.Full, agent_case.Lost):
            with self.subTest(trouble=trouble.__name__):
                self.setUp()
                self.finish_though_refused(
                    agent_case.repairing("exec_command", shell(
                        "sed -i 's/a - b/a + b/' calc.py")),
                    self.command, trouble)

    def test_it_reads_that_a_prompt_is_too_long(self):
        text, status = self.run_on_default_model(self.command)
        self.assertNotEqual(status, 0)
        self.assertIn("Codex ran out of room in the model's context window",
                      text)

    def command(self, cluster, name="sluice"):
        provider = (f'{{name="Sluice", base_url="{cluster.url}/v1", '
                    'wire_api="responses"}')
        return [PROGRAM, "exec", "--skip-git-repo-check",
                "--dangerously-bypass-approvals-and-sandbox", "-m", name,
                "-c", "model_provider=sluice",
                "-c", f"model_providers.sluice={provider}",
                agent_case.TASK], {}


if __name__ == "__main__":
    harness.main()
