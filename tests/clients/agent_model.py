"""A model that says what a script wants, for tests of coding agents.

Its weights are a recipe's in tests/golden's form (coding/model.json): two layers,
65,536 positions, the vocabulary of Qwen3. Its chat template knows the scripts:
it finds the script of the tools that a request offers, or of words that it has,
and writes that script's next answer behind the conversation, between two marks
that no message can spell. sluice-scripted-gateway
(tests/testing/scripted_gateway) then holds the answer to that text by a grammar.
The next answer is that behind as many tool results as the conversation has, or
behind as many answers of the model, where the script has no tools.
"""

import json
import os
import pathlib
import sys
import tempfile

import harness

sys.path.insert(0, str(harness.ROOT / "tests" / "golden"))
import recipe as recipes  # noqa: E402

RECIPE = pathlib.Path(__file__).resolve().parent / "coding" / "model.json"
TOKENIZER = "tokenizers/qwen3/tokenizer.json"
GATEWAY = "tests/testing/scripted_gateway/sluice-scripted-gateway"
FLAGS = ["--weights", "f32", "--stages", 2, "--spares", 1, "--threads", 1,
         "--tool-format", "hermes", "--reasoning-format", "think",
         "--any-model-name", "--max-tokens-overflow", "cut"]
# To a request that no script is for: titles, summaries.
OTHERWISE = "A small repair."

_TEMPLATE = """\
{%- set scripts = SCRIPTS -%}
{%- set seen = namespace(tools='|', text='', results=0, answers=0) -%}
{%- set next = namespace(answer=OTHERWISE, found=false) -%}
{%- if tools -%}
<|im_start|>system
{% for tool in tools -%}
{%- set seen.tools = seen.tools + tool.function.name + '|' -%}
{{ tool | tojson }}
{% endfor -%}
<|im_end|>
{% endif -%}
{%- for message in messages -%}
{%- set text = message.content if message.content is string else '' -%}
{%- set seen.text = seen.text + text -%}
{%- if message.role == 'tool' -%}
{%- set seen.results = seen.results + 1 -%}
{%- elif message.role == 'assistant' -%}
{%- set seen.answers = seen.answers + 1 -%}
{%- endif -%}
<|im_start|>{{ message.role }}
{{ text }}
{%- for call in message.tool_calls or [] %}
<tool_call>
{"name": {{ call.function.name | tojson }}, "arguments": {{ call.function.arguments | tojson }}}
</tool_call>
{%- endfor -%}
<|im_end|>
{% endfor -%}
{%- for script in scripts if script.says in seen.text -%}
{%- set offered = not script.tool or ('|' + script.tool + '|') in seen.tools -%}
{%- if offered and not next.found -%}
{%- set next.found = true -%}
{%- set at = seen.results if script.tool else seen.answers -%}
{%- set steps = script.steps -%}
{%- set next.answer = steps[at] if at < steps | length else steps[-1] -%}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
<|object_ref_start|>{{ next.answer }}<|object_ref_end|><|im_start|>assistant
{% endif -%}
"""


def call(name, **arguments):
    """A tool call as the model writes it."""
    return "<tool_call>\n{}\n</tool_call>".format(
        json.dumps({"name": name, "arguments": arguments}))


def script(steps, tool="", says=""):
    """Answers `steps`, one after another, to who offers `tool` and has `says`
    in its messages."""
    return {"tool": tool, "says": says, "steps": steps}


def _template(scripts):
    return (_TEMPLATE.replace("SCRIPTS", json.dumps(scripts))
            .replace("OTHERWISE", json.dumps(OTHERWISE)))


def make(folder, scripts):
    """Writes the model into `folder`, whose path it returns."""
    recipe = json.loads(RECIPE.read_text())
    tokenizer = harness.test_data(TOKENIZER)
    recipe["tokenizer"] = tokenizer
    recipe["tokenizer_config"] = {"eos_token": "<|im_end|>",
                                  "chat_template": _template(scripts)}
    made = recipes.files(recipe)
    sums = recipes.sums(made)
    for name, wanted in recipe["sums"].items():
        assert sums[name] == wanted, (name, sums[name], wanted)
    folder = pathlib.Path(folder)
    for name, data in made.items():
        (folder / name).write_bytes(data)
    return folder


class ScriptedCluster(harness.Cluster):
    """A cluster of that model and of sluice-scripted-gateway, where both are."""

    def __init__(self, scripts, *options):
        build = pathlib.Path(os.environ["SLUICE_BUILD_DIR"]).absolute()
        gateway = build / GATEWAY
        if harness.SANITIZED or not gateway.exists():
            raise harness.unittest.SkipTest(
                f"needs {gateway}, without a sanitizer")
        self._programs = tempfile.TemporaryDirectory(prefix="sluice-agents-")
        programs = pathlib.Path(self._programs.name)
        for path, target in (("gateway/sluice-gateway", gateway),
                             ("stage/sluice-stage",
                              build / "services/stage/sluice-stage")):
            link = programs / "services" / path
            link.parent.mkdir(parents=True)
            link.symlink_to(target)
        (programs / "model").mkdir()
        super().__init__(make(programs / "model", scripts), *FLAGS, *options,
                         environment={"SLUICE_BUILD_DIR": str(programs)})

    def close(self):
        super().close()
        self._programs.cleanup()
