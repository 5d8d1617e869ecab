"""Grammars and bodies drawn at random, for `query_of_death.py`: every kind of
grammar, with extreme numbers, depth, width and repetition. A seed gives the
same texts everywhere."""

import json

# Where integers, floats and counters of libraries end, and their neighbours.
NUMBERS = (
    *(sign * 2 ** bits + more for bits in (7, 31, 32, 53, 63, 64, 127)
      for sign in (1, -1) for more in (-1, 0, 1)),
    0, -0.0, 0.1, 1e-9, 1e-300, 5e-324, 1e19, -1e20, 3.4028235e38,
    1.7976931348623157e308, 10 ** 40, -(10 ** 400), 1234567890123456789)
COUNTS = (0, 1, 2, 7, 30, 63, 255, 256, 1000, 65535, 100000, 2 ** 31 - 1,
          2 ** 31, 2 ** 32, 2 ** 53, -1)
FORMATS = ("date", "date-time", "time", "duration", "email", "hostname", "ipv4",
           "ipv6", "uri", "uuid", "int32", "int64", "double", "binary",
           "password", "regex", "", "no such format")
LETTERS = ("a", "b", "é", "😀", ".", "\\d", "\\w", "\\s", "[a-z]", "[^a]",
           "[\\d-z]", "\\u00e9", "\\x41", " ", "\\/", "-", "[+--]", "[a&&b]")


class Drawer:
    """Texts from one generator of random numbers."""

    def __init__(self, rng):
        self._rng = rng

    def _many(self, most, draw):
        return [draw() for _ in range(self._rng.randrange(1, most + 1))]

    def count(self):
        return self._rng.choice(COUNTS)

    def regex(self, depth=0):
        rng = self._rng
        kind = rng.randrange(8) if depth < 7 else 0
        if kind < 3:
            return rng.choice(LETTERS)
        if kind == 3:
            return "".join(self._many(4, lambda: self.regex(depth + 1)))
        if kind == 4:
            return "(" + "|".join(
                self._many(4, lambda: self.regex(depth + 1))) + ")"
        if kind == 5:
            return f"({self.regex(depth + 1)})" + rng.choice("*+?")
        if kind == 6:
            low = rng.choice((0, 1, 5, 50, 1000, 100000))
            high = rng.choice(("", low, low + 1, low + 1000))
            return f"({self.regex(depth + 1)}){{{low},{high}}}"
        # Much of the same.
        return (self.regex(depth + 1) * rng.choice((10, 100, 2000)))[:20000]

    def pattern(self):
        ends = self._rng.choice((("", ""), ("^", "$"), ("^", ""), ("(?!", ")"),
                                 ("(?i)", ""), ("\\b", "")))
        return ends[0] + self.regex() + ends[1]

    def schema(self, depth=0):
        rng = self._rng
        kind = rng.randrange(14) if depth < 6 else rng.randrange(6)
        draw = lambda: self.schema(depth + 1)  # noqa: E731
        if kind == 0:
            return {rng.choice(("const", "default")): rng.choice(NUMBERS)}
        if kind == 1:
            return {"enum": self._many(6, self.value)}
        if kind == 2:
            schema = {"type": rng.choice(("integer", "number",
                                          ["integer", "null"]))}
            for key in ("minimum", "maximum", "exclusiveMinimum",
                        "exclusiveMaximum", "multipleOf"):
                if rng.random() < 0.4:
                    schema[key] = rng.choice(NUMBERS)
            return schema
        if kind == 3:
            schema = {"type": "string"}
            for key, draw_value in (("minLength", self.count),
                                    ("maxLength", self.count),
                                    ("pattern", self.pattern),
                                    ("format", lambda: rng.choice(FORMATS))):
                if rng.random() < 0.4:
                    schema[key] = draw_value()
            return schema
        if kind == 4:
            return {"type": rng.choice(("null", "boolean", "object", "array",
                                        "nothing"))}
        if kind == 5:
            return {"$ref": rng.choice(("#", "#/$defs/a", "#/$defs/none", "",
                                        "https://example.com/a.json"))}
        if kind in (6, 7):
            names = self._many(8, lambda: rng.choice("abcdefgh"))
            return {"type": "object",
                    "properties": {name: draw() for name in names},
                    "required": names[:rng.randrange(len(names) + 1)],
                    "additionalProperties": rng.choice((False, True, {}))}
        if kind == 8:
            return {"type": "array", "items": draw(), "minItems": self.count(),
                    "maxItems": self.count()}
        if kind in (9, 10):
            return {rng.choice(("anyOf", "oneOf", "allOf")):
                    self._many(5, draw)}
        if kind == 11:
            return {"patternProperties": {self.pattern(): draw()}}
        if kind == 12:
            return {"not": draw(), "uniqueItems": True, "if": draw()}
        # Deep, or wide.
        if rng.random() < 0.5:
            whole = draw()
            for _ in range(rng.choice((10, 60, 300))):
                whole = {"type": "array", "items": whole}
            return whole
        return {"type": "object", "properties": {
            f"p{at}": {"type": "integer", "minimum": rng.choice(NUMBERS)}
            for at in range(rng.choice((20, 300)))}}

    def root(self):
        schema = self.schema()
        if self._rng.random() < 0.3:
            schema["$defs"] = {"a": self.schema(1)}
        return schema

    def value(self, depth=0):
        rng = self._rng
        if depth > 3 or rng.random() < 0.6:
            return rng.choice((*NUMBERS, "", "a", "1", "null", "é\n\"", True,
                               False, None))
        if rng.random() < 0.5:
            return self._many(3, lambda: self.value(depth + 1))
        return {key: self.value(depth + 1) for key in "ab"}

    def _lark_rule(self, depth=0):
        rng = self._rng
        kind = rng.randrange(7) if depth < 5 else rng.randrange(3)
        if kind == 0:
            return json.dumps(rng.choice(("a", "b\n", "é", "", "\\")))
        if kind == 1:
            return "/" + self.regex().replace("/", "") + "/"
        if kind == 2:
            return rng.choice(("r0", "r1", "r2", "T", "<|im_end|>", "missing"))
        if kind == 3:
            return "%json " + json.dumps(self.schema(3))
        more = lambda: self._lark_rule(depth + 1)  # noqa: E731
        if kind == 4:
            return "(" + " | ".join(self._many(4, more)) + ")"
        if kind == 5:
            return f"({more()}){rng.choice(('*', '+', '?', '{2,5}', '{0,1000}'))}"
        return " ".join(self._many(4, more))

    def lark(self):
        rules = "".join(f"r{at}: {self._lark_rule()}\n" for at in range(3))
        return f"start: {self._lark_rule()}\n{rules}T: /[a-z]+/ & ~/b+/\n"

    def _gbnf_rule(self, depth=0):
        rng = self._rng
        kind = rng.randrange(6) if depth < 6 else rng.randrange(3)
        if kind == 0:
            return json.dumps(rng.choice(("a", "b", "é", "")))
        if kind == 1:
            return rng.choice(("[a-z]", "[^\\n]", "[\\x00-\\U0010FFFF]", "."))
        if kind == 2:
            return rng.choice(("root", "x", "y", "missing"))
        more = lambda: self._gbnf_rule(depth + 1)  # noqa: E731
        if kind == 3:
            return "(" + " | ".join(self._many(4, more)) + ")"
        if kind == 4:
            return f"({more()})" + rng.choice(
                ("*", "+", "?", "{3}", "{0,50}", "{100000}", "{2,}"))
        return " ".join(self._many(4, more))

    def gbnf(self):
        return "".join(f"{name} ::= {self._gbnf_rule()}\n"
                       for name in ("root", "x", "y"))

    def structural_tag(self):
        rng = self._rng
        return {"type": "structural_tag", "structures": [
            {"begin": rng.choice(("<a>", "", "<|im_end|>")),
             "schema": self.root(), "end": rng.choice(("</a>", ""))}
            for _ in range(rng.randrange(1, 4))],
            "triggers": rng.choice((["<a"], [], ["<"], [""]))}

    def tools(self):
        rng = self._rng
        tools = [{"type": "function", "function": {
            "name": f"f{at}", "parameters": self.root(),
            "strict": rng.choice((True, False, None))}}
            for at in range(rng.randrange(1, 4))]
        return {"tools": tools, "tool_choice": rng.choice(
            ("required", "auto", {"type": "function",
                                  "function": {"name": "f0"}}))}

    def grammar(self):
        """(kind, fields of a request) of one grammar."""
        rng = self._rng
        kind = rng.choice(("schema", "json_schema", "regex", "lark", "gbnf",
                           "choice", "structural_tag", "tools"))
        if kind == "schema":
            return kind, {"response_format": {
                "type": "json_schema",
                "json_schema": {"name": "x", "schema": self.root()}}}
        if kind == "json_schema":
            return kind, {"guided_json": self.root()}
        if kind == "regex":
            return kind, {"guided_regex": self.regex()}
        if kind == "lark":
            return kind, {"guided_grammar": self.lark()}
        if kind == "gbnf":
            return kind, {"grammar": self.gbnf()}
        if kind == "choice":
            return kind, {"guided_choice": [
                str(one) for one in self._many(200, self.value)]}
        if kind == "tools":
            return kind, self.tools()
        return kind, {"response_format": self.structural_tag()}

    def body(self):
        """A body of the right names, with values of any kind."""
        rng = self._rng
        names = ("messages", "prompt", "model", "max_tokens", "temperature",
                 "top_p", "top_k", "min_p", "seed", "stop", "n", "logprobs",
                 "top_logprobs", "logit_bias", "presence_penalty", "tools",
                 "tool_choice", "response_format", "stream", "echo", "suffix",
                 "chat_template_kwargs", "stream_options", "stop_token_ids",
                 "min_tokens", "repetition_penalty", "prompt_logprobs",
                 "guided_json", "guided_regex", "reasoning_effort", "user")
        sound = {"messages": [{"role": "user", "content": "Hi"}],
                 "prompt": "Hi", "max_tokens": 4}
        fields = {name: self.value() for name in
                  self._many(5, lambda: rng.choice(names))}
        return {**sound, **fields}


    def _part(self, types):
        """A part of a message: of a known type, with members of any kind."""
        rng = self._rng
        part = {"type": rng.choice(types), "text": "Hi"}
        for name in ("id", "name", "input", "content", "thinking", "signature",
                     "source", "tool_use_id", "call_id", "arguments", "output",
                     "summary", "image_url", "tool_name", "namespace"):
            if rng.random() < 0.3:
                part[name] = self.value()
        return part

    def _turns(self, types, roles):
        rng = self._rng
        return self._many(4, lambda: {
            "role": rng.choice(roles),
            "content": rng.choice((
                "Hi", self.value(),
                self._many(3, lambda: self._part(types)))),
            **{name: self.value() for name in rng.sample(
                ("tool_calls", "thinking", "images", "tool_name", "status",
                 "type", "id"), rng.randrange(3))}})

    def _tools_of(self, shape):
        schema = self.root()
        return self._many(3, lambda: {
            "responses": {"type": self._rng.choice(
                ("function", "custom", "namespace", "web_search", "mcp")),
                "name": "f", "parameters": schema, "tools": self.value(),
                "format": {"type": "grammar", "syntax": self._rng.choice(
                    ("lark", "regex")), "definition": self.lark()}},
            "messages": {"name": "f", "input_schema": schema,
                         "defer_loading": self._rng.random() < 0.2,
                         "type": self._rng.choice(
                             ("custom", "web_search_20250305", 5))},
            "ollama": {"type": "function", "function": {
                "name": "f", "parameters": schema}}}[shape])

    def dialect_body(self):
        """(path, body) of a dialect beside chats: right names, values of any
        kind, and grammars at the places that the dialect has for them."""
        rng = self._rng
        path, (shape, sound, names) = rng.choice(list(DIALECT_BODIES.items()))
        fields = {name: self.value() for name in
                  self._many(4, lambda: rng.choice(names))}
        if shape == "responses":
            fields["input"] = rng.choice(("Hi", self._turns(
                ("input_text", "output_text", "input_image", "function_call",
                 "function_call_output", "reasoning", "item_reference",
                 "custom_tool_call_output"), ("user", "assistant", "developer")
            )))
            fields["text"] = {"format": {"type": "json_schema", "name": "x",
                                         "schema": self.root()}}
        elif shape == "messages":
            fields["messages"] = self._turns(
                ("text", "image", "thinking", "tool_use", "tool_result",
                 "tool_reference", "document"), ("user", "assistant", "system"))
            fields["output_config"] = {"format": {"type": "json_schema",
                                                  "schema": self.root()}}
        elif shape == "ollama":
            fields["format"] = rng.choice(("json", self.root()))
            fields["stream"] = rng.random() < 0.3
        else:
            fields["grammar"] = self.gbnf()
        if shape != "llama" and rng.random() < 0.4:
            fields["tools"] = self._tools_of(shape)
            fields["tool_choice"] = rng.choice((
                "required", {"type": "any"}, {"type": "tool", "name": "f"},
                {"type": "function", "name": "f"}))
        kept = rng.sample(sorted(fields), rng.randrange(len(fields) + 1))
        return path, {**sound, **{name: fields[name] for name in kept}}


_HI = [{"role": "user", "content": "Hi"}]
# By path: whose shape, a body that is answered, and names of more fields.
DIALECT_BODIES = {
    "/v1/responses": ("responses", {"input": "Hi", "max_output_tokens": 8}, (
        "model", "instructions", "temperature", "top_p", "reasoning", "include",
        "store", "previous_response_id", "stream", "truncation", "metadata",
        "parallel_tool_calls", "top_logprobs", "background", "text", "prompt",
        "stream_options", "conversation", "max_tool_calls")),
    "/v1/responses/input_tokens": ("responses", {"input": "Hi"}, (
        "model", "instructions", "reasoning", "previous_response_id")),
    "/v1/messages": ("messages", {
        "model": "model", "max_tokens": 8, "messages": _HI}, (
        "system", "temperature", "top_p", "top_k", "stop_sequences", "stream",
        "thinking", "metadata", "container", "mcp_servers", "service_tier",
        "cache_control", "output_config", "context_management")),
    "/v1/messages/count_tokens": ("messages", {
        "model": "model", "messages": _HI}, ("system", "thinking")),
    "/api/chat": ("ollama", {
        "model": "model", "messages": _HI, "stream": False,
        "options": {"num_predict": 8}}, (
        "options", "think", "keep_alive", "logprobs", "top_logprobs", "format",
        "messages")),
    "/api/generate": ("ollama", {
        "model": "model", "prompt": "Hi", "stream": False,
        "options": {"num_predict": 8}}, (
        "options", "think", "keep_alive", "suffix", "system", "template",
        "raw", "images", "context", "prompt")),
    "/api/show": ("ollama", {"model": "model"}, ("model", "verbose")),
    "/api/pull": ("ollama", {"model": "model"}, ("model", "insecure")),
    "/completion": ("llama", {"prompt": "Hi", "n_predict": 8}, (
        "prompt", "temperature", "stop", "n_probs", "logit_bias", "stream",
        "json_schema", "samplers", "seed", "n_keep", "id_slot",
        "timings_per_token", "cache_prompt")),
    "/infill": ("llama", {
        "input_prefix": "a", "input_suffix": "b", "n_predict": 8}, (
        "input_extra", "prompt", "input_prefix", "input_suffix")),
    "/apply-template": ("llama", {"messages": _HI}, (
        "messages", "tools", "chat_template_kwargs")),
}


def request_of(fields, chat):
    """(path, body) of a short request with the fields of a grammar."""
    if chat:
        return "/v1/chat/completions", {
            "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 24,
            **fields}
    return "/v1/completions", {"prompt": "Hi", "max_tokens": 24, **fields}


def encoded(value):
    """JSON as clients send it: numbers beyond double's range as they are."""
    return json.dumps(value).encode()
