"""The prompts of a reference: twenty short ones, a text of about 2,000 tokens and
one of about 4,000, or those of a file. Standard library alone."""

import json
import pathlib

from failure import Failure

OWN = pathlib.Path(__file__).resolve().parent / "prompts.jsonl"
LONG = {"long_2k": 2000, "long_4k": 4000}  # tokens

_KEEPERS = ("Anna", "Bruno", "Clara", "David", "Edda", "Felix", "Greta", "Hugo")
_LOCKS = ("north lock", "south lock", "mill lock", "harbour lock", "old lock",
          "iron lock")
_GOODS = ("barrels of salt", "sacks of grain", "crates of glass",
          "rolls of wool", "planks of oak", "jars of honey", "stacks of brick")
_WEATHER = ("It rained until noon.", "The wind came from the west.",
            "Fog lay on the water.", "The night was clear and cold.",
            "The reeds stood still all day.", "Ice covered the upper gate.")
_EVENTS = ("A {good} boat waited for {n} hours, since the {lock} was closed.",
           "{who} oiled the hinges of the {lock} and counted {n} loose bolts.",
           "The level at the {lock} rose by {n} centimetres.",
           "{who} sold {n} {good} to a merchant who came by cart.",
           "A heron stood on the gate of the {lock} and {who} drew it.")


class _Numbers:
    """The same numbers on every machine: a linear congruential generator."""

    def __init__(self, seed):
        self._state = seed

    def below(self, limit):
        self._state = (self._state * 6364136223846793005 +
                       1442695040888963407) % 2**64
        return (self._state >> 33) % limit

    def one_of(self, things):
        return things[self.below(len(things))]


def long_text(days):
    """A lock keeper's journal of so many days: the same for the same number, and
    the beginning of that of more days."""
    numbers, lines = _Numbers(2027), []
    for day in range(1, days + 1):
        sentences = [f"Day {day}. {numbers.one_of(_WEATHER)}",
                     f"{numbers.one_of(_KEEPERS)} of the "
                     f"{numbers.one_of(_LOCKS)} noted "
                     f"{numbers.below(900) + 11} {numbers.one_of(_GOODS)}."]
        for _ in range(numbers.below(3) + 1):
            sentences.append(numbers.one_of(_EVENTS).format(
                who=numbers.one_of(_KEEPERS), lock=numbers.one_of(_LOCKS),
                good=numbers.one_of(_GOODS), n=numbers.below(80) + 3))
        lines.append(" ".join(sentences))
    return "\n".join(lines)


def long_question(days):
    """What comes behind the journal; its answer stands in the first third."""
    day = max(1, days // 3)
    line = long_text(days).splitlines()[day - 1]
    begin = line.split(" noted ")[0].split(". ")[-1]
    return (f"\n\nFrom the journal above: on day {day}, {begin} noted this "
            "number of goods:")


def _check(entry, where):
    if not isinstance(entry, dict):
        raise Failure(f"{where}: not a JSON object", 2)
    kinds = [key for key in ("prompt", "messages") if key in entry]
    if len(kinds) != 1:
        raise Failure(f'{where}: must have "prompt" or "messages", got '
                      f"{' and '.join(kinds) or 'neither'}", 2)
    value = entry[kinds[0]]
    if kinds[0] == "messages":
        fits = isinstance(value, list) and value and all(
            isinstance(message, dict) and
            isinstance(message.get("role"), str) and
            isinstance(message.get("content"), str) for message in value)
        wanted = 'a list of {"role": text, "content": text}'
    else:
        fits = isinstance(value, str) and value or (
            isinstance(value, list) and value and
            all(type(token) is int and token >= 0 for token in value))
        wanted = "a text or token ids, at least one"
    if not fits:
        raise Failure(f'{where}: "{kinds[0]}" must be {wanted}', 2)


def read(path):
    """[{"name": .., "prompt": text or ids, or "messages": [..]}] of a file of
    JSON lines. Failure names the bad line."""
    try:
        text = pathlib.Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Failure(f"the prompts {path}: {error}", 2) from error
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
        except ValueError as error:
            raise Failure(f"{path}:{number}: {error}", 2) from error
        _check(entry, f"{path}:{number}")
        name = entry.get("name", f"prompt_{len(found)}")
        if not isinstance(name, str) or not name:
            raise Failure(f'{path}:{number}: "name" must be a text', 2)
        found.append({**entry, "name": name})
    if not found:
        raise Failure(f"{path} has no prompts", 2)
    return found


def ids_of(entry, tokenizer):
    """The token ids of a prompt; a chat without a template is its texts."""
    if "messages" in entry:
        if getattr(tokenizer, "chat_template", None):
            text = tokenizer.apply_chat_template(
                entry["messages"], tokenize=False, add_generation_prompt=True)
            return tokenizer(text, add_special_tokens=False)["input_ids"]
        text = "\n\n".join(message["content"]
                           for message in entry["messages"]) + "\n\n"
        return tokenizer(text)["input_ids"]
    if isinstance(entry["prompt"], str):
        return tokenizer(entry["prompt"])["input_ids"]
    return list(entry["prompt"])


def long_ids(tokenizer, tokens):
    """Exactly so many ids: the journal, cut, and the question behind it. None
    where the tokenizer does not spell such texts."""
    days = tokens // 24
    end = tokenizer(long_question(days), add_special_tokens=False)["input_ids"]
    begin = tokenizer(long_text(tokens // 8))["input_ids"]
    if len(end) >= tokens // 2 or len(begin) + len(end) < tokens:
        return None
    if len(set(begin)) < 20:
        return None  # Hardly more than unknown tokens.
    return begin[:tokens - len(end)] + end
