"""Grammars that were written to cost much: (kind, text) of each."""

import json


def _references(count, wrap):
    """Definitions in a chain: each is `wrap` of a reference to the one before."""
    definitions = {"d0": {"type": "object",
                          "properties": {"x": {"type": "string"}}}}
    for i in range(1, count):
        definitions[f"d{i}"] = wrap({"$ref": f"#/$defs/d{i - 1}"}, i)
    return {"$defs": definitions, "$ref": f"#/$defs/d{count - 1}"}


def schemas():
    def array(of):
        return {"type": "array", "items": of}

    chain = list(range(6000))
    any_of = [{"type": "object", "properties": {
        f"k{j}": {"type": "string", "pattern": f"^[a-z]*{j}[a-z]*{i}$"}
        for j in range(30)}} for i in range(60)]
    yield from (
        _references(30, lambda ref, i: {"anyOf": [ref, array(ref)]}),
        _references(25, lambda ref, i: {"allOf": [
            ref, {"type": "object", "properties": {f"p{i}": ref}}]}),
        _references(40, lambda ref, i: {
            "type": "object", "properties": {"a": ref, "b": ref},
            "required": ["a", "b"]}),
        _references(3000, lambda ref, i: array(ref)),
        _references(3000, lambda ref, i: {"anyOf": [ref, {"type": "integer"}]}),
        {"$defs": {**{f"d{i}": {"$ref": f"#/$defs/d{i + 1}"} for i in chain},
                   "d6000": {"type": "null"}}, "$ref": "#/$defs/d0"},
        {"enum": [f"v{i}" for i in range(9999)]},
        {"enum": [f"v{i}" for i in range(100000)]},
        {"type": "object", "properties": {
            f"p{i}": {"type": "string", "minLength": i % 50, "maxLength": 1000}
            for i in range(2000)}},
        {"type": "object", "properties": {
            f"p{i}": {"type": "string"} for i in range(2000)},
         "minProperties": 5},
        {"properties": {f"k{i}": {"$ref": "#"} for i in range(9000)}},
        {"type": "string", "minLength": 100000, "maxLength": 200000},
        {**array({"type": "integer"}), "minItems": 100000},
        {**array({"anyOf": [{"type": "integer"}, {"type": "string"}]}),
         "minItems": 1000, "maxItems": 50000},
        {"type": "string", "pattern": "(a|b)*a(a|b){30}"},
        {"allOf": [{"type": "string", "pattern": f"(a|b)*a(a|b){{{i}}}$"}
                   for i in range(12)]},
        {"anyOf": any_of},
        {"type": "object", "patternProperties": {
            f"^[a-z]{{{i}}}x$": {} for i in range(300)}},
        {"type": "number", "multipleOf": 1e-9, "minimum": 0.1,
         "maximum": 1e300},
        {"allOf": [{"multipleOf": p} for p in (9973, 9967, 9949, 9941)],
         "type": "integer"})


REGEXES = (
    "(a|a)*b", "((a{0,100}){0,100}){0,100}", "(.*a.*){25}", "(a?){500}a{500}",
    "[ab]*a[ab]{400}c", "(?:(?:.*x){10}y){10}", "a{1,100000}",
    "(\\w{1,50}\\s?){1,200}", "\\pL{1,100000}", "[^a]{5000}b[^c]{5000}",
    "(" * 200 + "a" + ")" * 200, "(" * 100000 + "a" + ")" * 100000,
    "(?:a{1000}){1000}")
LARKS = (
    'start: a\na: a a | "x" |\n', 'start: s\ns: s s s | s s | "a" | "b"\n',
    "start: " + " | ".join(f'"w{i}"' for i in range(15000)) + "\n",
    "start: " + "|".join('"a"' for _ in range(60000)) + "\n",
    "start: " + "(" * 100000 + '"a"' + ")" * 100000 + "\n",
    "start: X\nX: " + "(" * 60000 + '"a"' + ")" * 60000 + "\n",
    "start: " + "[ " * 50000 + '"a"' + " ]" * 50000 + "\n",
    "start: r0\n" + "".join(f"r{i}: r{i + 1}\n" for i in range(15000)) +
    'r15000: "a"\n',
    "start: A\nA: B\nB: A\n", "start: %json " + "[" * 100000 + "\n",
    'start: ("a"{1,1000}){1,1000}\n',
    "start: /a{1,1000}/ (/b{1,1000}/ | /[ab]{1,1000}/)*\n",
    'start: (x{1,10000}){1,10000}\nx: "a" | "b" x\n',
    'start: "' + "a" * (1 << 20) + '"\n')
GBNFS = (
    "root ::= (root root | [a-z])*", "root ::= ((((([a-z]*)*)*)*)*)*",
    "root ::= x{1,5000}\nx ::= [a-z] | [a-m] | y\ny ::= [n-z]{1,100}",
    "root ::= " + "(" * 100000 + '"a"' + ")" * 100000,
    "root ::= r0\n" + "".join(f"r{i} ::= r{i + 1}\n" for i in range(12000)) +
    'r12000 ::= "a"\n',
    'root ::= (("a"{1,1000}){1,1000}){1,1000}', 'root ::= "a"{1,10000} root?',
    "root ::= " + "a " * 60000 + '\na ::= root | "x"')
CHOICES = ([f"{'x' * (i % 50)}{i}" for i in range(9999)],
           [f"value {i}" for i in range(100000)])


def request_fields():
    """What a request says to ask for each of the grammars."""
    for schema in schemas():
        yield {"json_schema": schema}
    for regex in REGEXES:
        yield {"regex": regex}
    for lark in LARKS:
        yield {"structured_outputs": {"grammar": lark}}
    for gbnf in GBNFS:
        yield {"grammar": gbnf}
    for choice in CHOICES:
        yield {"structured_outputs": {"choice": choice}}
