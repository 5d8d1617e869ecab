"""opencode, unmodified: a task finished while a stage is killed (long mode)."""

import json
import unittest

import agent_case
from agent_model import call, script
import harness

PROGRAM = agent_case.BIN / "opencode"
agent_case.needs(PROGRAM)


class OpencodeTest(agent_case.AgentCase):
    def test_a_task_is_finished_while_a_stage_is_killed(self):
        file = str(self.work / "calc.py")
        self.finish_task(script(tool="edit", steps=[
            agent_case.LOOKS + call("read", filePath=file),
            agent_case.REPAIRS + call("edit", filePath=file, oldString="a - b",
                                      newString="a + b"),
            agent_case.CHECKS + call("bash", command=agent_case.CHECKING),
            agent_case.DONE]), self.command)

    def test_it_asks_again_until_it_is_served(self):
        for trouble in (agent_case.Full, agent_case.Lost):
            with self.subTest(trouble=trouble.__name__):
                self.setUp()
                file = str(self.work / "calc.py")
                self.finish_though_refused(
                    agent_case.repairing(
                        "edit", call("read", filePath=file),
                        call("edit", filePath=file, oldString="a - b",
                             newString="a + b")), self.command, trouble)

    def command(self, cluster):
        config = self.home / "opencode.json"
        config.write_text(json.dumps({
            "autoupdate": False, "share": "disabled",
            "model": "sluice/sluice", "small_model": "sluice/sluice",
            "provider": {"sluice": {
                "npm": "@ai-sdk/openai-compatible", "name": "Sluice",
                "options": {"baseURL": cluster.url + "/v1", "apiKey": "none"},
                "models": {"sluice": {
                    "name": "Sluice", "tool_call": True,
                    "limit": {"context": 65536, "output": 8192}}}}}}))
        return [PROGRAM, "run", agent_case.TASK], {
            "OPENCODE_CONFIG": str(config), "OPENCODE_DISABLE_MODELS_FETCH": "1"}


if __name__ == "__main__":
    harness.main()
