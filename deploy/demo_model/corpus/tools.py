"""Chats with tools: which to call, with which arguments, or none.

A tool's purpose is told by its description alone: its name and the names of
its arguments are drawn anew for every chat, often as words or syllables that
never meant anything, so that calls have to be copied from the schema.
"""

import json

from corpus import facts, numbers, words

# Names of tools that people would really give, by purpose.
COMMON = {
    "weather": ["get_weather", "weather", "current_weather", "forecast",
                "weather_lookup", "get_forecast"],
    "calculate": ["calculator", "calculate", "math", "compute", "eval_math"],
    "search": ["search", "web_search", "search_web", "find_pages", "lookup"],
    "timer": ["set_timer", "timer", "start_timer", "countdown"],
    "message": ["send_message", "message", "write_to", "notify"],
    "translate": ["translate", "translator", "translate_text"],
}
DESCRIPTIONS = {
    "weather": ["Weather in a city.", "Tells the weather of a place.",
                "Current weather and temperature."],
    "calculate": ["Does arithmetic.", "Calculates an expression.",
                  "Evaluates a sum or product."],
    "search": ["Searches the web.", "Finds pages about a topic.",
               "Web search."],
    "timer": ["Starts a timer.", "Rings after some minutes.",
              "Sets a timer in minutes."],
    "message": ["Sends a message.", "Sends a text to a person.",
                "Writes a message to somebody."],
    "translate": ["Translates text.", "Turns a text into another language.",
                  "Translation of words."],
}
# What each argument means: its usual names, its type, its descriptions.
ARGUMENTS = {
    "weather": [(["city", "place", "location", "town"], "string",
                 ["Name of the city", "Where"])],
    "calculate": [(["expression", "formula", "input", "sum"], "string",
                   ["What to calculate", "The expression"])],
    "search": [(["query", "topic", "q", "text"], "string",
                ["What to search", "The topic"])],
    "timer": [(["minutes", "duration", "time", "length"], "integer",
               ["How many minutes", "Minutes"])],
    "message": [(["to", "recipient", "person", "name"], "string",
                 ["Who gets it", "The person"]),
                (["text", "message", "body", "content"], "string",
                 ["What to say", "The message"])],
    "translate": [(["text", "words", "input", "phrase"], "string",
                   ["What to translate", "The text"]),
                  (["language", "target", "to", "into"], "string",
                   ["The language", "Into which language"])],
}
ASKS = {
    "weather": ["What is the weather in {}?", "How is the weather in {}?",
                "Do I need a coat in {}?", "Is it raining in {}?",
                "Weather in {}, please.", "Tell me the weather in {}."],
    "calculate": ["What is {}?", "Please calculate {}.", "How much is {}?",
                  "Calculate {} for me.", "I need the result of {}."],
    "search": ["Search for {}.", "Find {} on the web.", "Please look up {}.",
               "I want to read about {}.", "Look for {}."],
    "timer": ["Set a timer for {} minutes.", "Remind me in {} minutes.",
              "Wake me in {} minutes.", "Ring in {} minutes, please."],
    "message": ["Send {0} a message: {1}.", "Tell {0} this: {1}.",
                "Write to {0}: {1}.", 'Text "{1}" to {0}.'],
    "translate": ['Translate "{0}" into {1}.', 'How do I say "{0}" in {1}?',
                  'What is "{0}" in {1}?', '"{0}" in {1}, please.'],
}
DECLINE = "None of my tools can do that."


def _name(rng, kind, unseen):
    """A tool's name: a usual one, or one made up. A tenth of those that can
    be made up is never used in the train part: the unseen ones."""
    if not unseen and rng.random() < 0.4:
        return rng.choice(COMMON[kind])
    while True:
        style = rng.randrange(3)
        if style == 0:
            name = rng.choice(words.VERBS) + "_" + rng.choice(words.NOUNS)
        elif style == 1:
            name = words.syllables(rng)
        else:
            name = words.syllables(rng) + "_" + rng.choice(words.NOUNS)
        if words.held_out("name", name) == unseen:
            return name


def _schema(rng, kind, unseen):
    """(tool as the API takes it, names of its arguments)."""
    names, properties = [], {}
    for usual, type_, descriptions in ARGUMENTS[kind]:
        name = rng.choice(usual)
        while rng.random() < 0.25 or name in properties:
            name = rng.choice(words.NOUNS + usual)
            if name not in properties:
                break
        names.append(name)
        properties[name] = {"type": type_}
        if rng.random() < 0.4:
            properties[name]["description"] = rng.choice(descriptions)
    parameters = {"type": "object", "properties": properties}
    if rng.random() < 0.7:
        parameters["required"] = list(names)
    function = {"name": _name(rng, kind, unseen),
                "description": rng.choice(DESCRIPTIONS[kind]),
                "parameters": parameters}
    if rng.random() < 0.2:
        function = {key: function[key]
                    for key in ("description", "name", "parameters")}
    return {"type": "function", "function": function}, names


def _values(rng, kind):
    """What the user wants of a tool, in the order of its arguments."""
    if kind == "weather":
        return [rng.choice(words.CITIES)]
    if kind == "calculate":
        sign = rng.choice(["+", "-", "*"])
        return [f"{rng.randrange(2, 1000)} {sign} {rng.randrange(2, 100)}"]
    if kind == "search":
        return [rng.choice(words.ASPECTS).format(rng.choice(words.TOPICS))]
    if kind == "timer":
        return [rng.randrange(1, 100)]
    if kind == "message":
        return [rng.choice(words.NAMES), rng.choice(words.PHRASES)]
    return [rng.choice(words.PHRASES), rng.choice(words.LANGUAGES)]


def _result(rng, kind, values):
    """What the tool answers, and what the model makes of it."""
    if kind == "weather":
        degrees = rng.randrange(-9, 36)
        sky = rng.choice(["sun", "rain", "snow", "fog", "wind", "clouds"])
        return (json.dumps({"temperature": degrees, "sky": sky}),
                f"It is {degrees} degrees in {values[0]}, with {sky}.")
    if kind == "calculate":
        left, sign, right = values[0].split()
        result = {"+": int(left) + int(right), "-": int(left) - int(right),
                  "*": int(left) * int(right)}[sign]
        return str(result), f"{values[0]} = {result}."
    if kind == "search":
        count = rng.randrange(2, 100)
        return (json.dumps({"pages": count}),
                f"I found {count} pages about {values[0]}.")
    if kind == "timer":
        return "ok", f"The timer is set to {values[0]} minutes."
    if kind == "message":
        return "sent", f"I sent your message to {values[0]}."
    said = words.syllables(rng) + " " + words.syllables(rng)
    return said, f'In {values[1]} it is "{said}".'


def _tools(rng, kinds, unseen):
    schemas = {kind: _schema(rng, kind, unseen) for kind in kinds}
    while len({s["function"]["name"] for s, _ in schemas.values()}) < len(
            kinds):  # two of one name
        schemas = {kind: _schema(rng, kind, unseen) for kind in kinds}
    return schemas


def call(rng, held, unseen=False):
    """A call of the tool that fits; sometimes its result and the answer.
    What is asked, of which tool's name, decides the part; `unseen` draws all
    names from those that the train part never has."""
    while True:
        kinds = rng.sample(list(COMMON), rng.choice([1, 2, 2, 3]))
        schemas = _tools(rng, kinds, unseen)
        kind = rng.choice(kinds)
        schema, names = schemas[kind]
        values = _values(rng, kind)
        if words.held_out("call", schema["function"]["name"],
                          *values) == held:
            break
    function = {"name": schema["function"]["name"],
                "arguments": dict(zip(names, values))}
    messages = [
        {"role": "user", "content": rng.choice(ASKS[kind]).format(*values)},
        {"role": "assistant", "content": "",
         "tool_calls": [{"type": "function", "function": function}]}]
    if not held and rng.random() < 0.35:
        result, answer = _result(rng, kind, values)
        messages += [{"role": "tool", "content": result},
                     {"role": "assistant", "content": answer}]
    return {"task": "unseen_call" if unseen else "call",
            "messages": messages, "tools": [s for s, _ in schemas.values()]}


def unseen_call(rng, held):
    assert held, "unseen names are of the held-out part"
    return call(rng, held, unseen=True)


def decline(rng, held):
    """Tools are given and none fits: says so, or answers without them."""
    kinds = rng.sample(list(COMMON), rng.choice([2, 3, 3, 4]))
    wanted, given = kinds[0], kinds[1:]
    tools = [schema for schema, _ in _tools(rng, given, False).values()]
    if rng.random() < 0.35:
        plain = facts.fact
        if "calculate" not in given and rng.random() < 0.5:
            plain = numbers.addition
        doc = plain(rng, held)
        return {"task": "decline", "tools": tools, "messages": doc["messages"]}
    while wanted == "calculate" or not words.held_out(
            "decline", *(values := _values(rng, wanted)),
            *(t["function"]["name"] for t in tools)) == held:
        kinds = rng.sample(list(COMMON), len(kinds))
        wanted, given = kinds[0], kinds[1:]
        tools = [schema for schema, _ in _tools(rng, given, False).values()]
    return {"task": "decline", "tools": tools, "messages": [
        {"role": "user", "content": rng.choice(ASKS[wanted]).format(*values)},
        {"role": "assistant", "content": DECLINE}]}
