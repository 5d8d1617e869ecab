#!/usr/bin/env python3
"""Writes snippets.json: what jinja2, set up as transformers sets it up, makes
of the tests, filters, operators and methods that chat templates use.

usage: tests/text/chats/make_snippets.py

Each line is a template and its text; templates that jinja2 refuses are left
out. `pip install jinja2==3.1.6 tokenizers==0.23.3` has what this script needs.
"""

import json

import jinja2

import make

VALUES = {
    "none": "none", "undefined": "zz", "text": "'ab'", "int": "3",
    "zero": "0", "float": "1.5", "true": "true", "list": "['a']",
    "no list": "[]", "map": "{'a': 1}", "no map": "{}", "range": "range(2)",
    "tuple": "('b', 1)", "namespace": "namespace(a=1)"}
TESTS = ["iterable", "sequence", "mapping", "string", "number", "integer",
         "float", "boolean", "none", "defined", "undefined", "true", "false",
         "callable"]
FILTERS = ["length", "list", "string", "trim", "join", "first", "last",
           "tojson", "upper", "default('d')", "default('d', true)", "int",
           "reverse|list", "sort", "items|list", "replace('a', 'b')",
           "unique|list", "map('upper')|list", "count", "abs", "round",
           "float", "lower", "capitalize", "title", "safe", "e", "sum",
           "min", "max", "selectattr('x')|list", "batch(2)|list", "dictsort",
           "center(8)", "wordcount", "pprint", "int(7)", "float(0.5)"]
FORMS = ["{{ V }}", "{{ 'x' ~ V }}", "{{ V ~ 'x' ~ V }}", "{{ 'x' + V }}",
         "{{ V.foo }}", "{{ 'a' in V }}", "{{ V[0] }}", "{{ V[1:] }}",
         "{{ V[:-1] }}", "{{ V[::-1] }}", "{{ V == none }}",
         "{% for i in V %}[{{ i }}]{% else %}empty{% endfor %}",
         "{% if V %}y{% else %}n{% endif %}", "{{ '%s|' % V }}"]
OTHERS = [
    "{{ 'a' ~ 1 ~ none ~ true ~ 1.5 ~ zz }}", "{{ (1 + 2) ~ (3) ~ -4 }}",
    "{{ 'a' ~ ('b' if true else ['c']) ~ [1][0] ~ {'k': [2]}.k }}",
    "{{ ('a' ~ ['b'])|upper ~ ('c', )|first }}", "{{ [1] ~ [2] ~ [3] }}",
    "{{ 'x' ~ 2 * 3 }}",
    "{% set x = ['a'] ~ 'b' %}{{ x }}", "{% if ['a'] ~ '' == \"['a']\" %}y"
    "{% endif %}", "{{ not 'a' ~ '' }}",
    "{{ 7 % 3 }}|{{ -7 % 3 }}|{{ 7 % -3 }}|{{ 7.5 % 2 }}|{{ true % 2 }}",
    "{{ 2 * 7 % 3 + 1 }}", "{{ (2 + 5) % (1 + 2) }}", "{{ 'x %s' % 'y' }}",
    "{{ '%s has %d and %.2f' % ('a', 3, 1.5) }}", "{{ '%s' % ['a', none] }}",
    "{{ '%5d|%-5s|%05.1f|%x|%%' % (42, 'ab', 3.14159, 255) }}",
    "{{ 'hello'[1:-1] }}|{{ 'hello'[::-1] }}|{{ 'hello'[-3:] }}|"
    "{{ 'hello'[:99] }}|{{ 'hello'[99:] }}|{{ 'hello'[3:1] }}",
    "{{ [1, 2, 3, 4][1:3] }}|{{ [1, 2, 3, 4][-2:] }}|{{ [1, 2, 3, 4][::2] }}|"
    "{{ [1, 2, 3, 4][3:0:-2] }}|{{ [1, 2, 3][:-5] }}|{{ [1, 2, 3][-5:2] }}",
    "{{ [1, 2, 3][1:][0] }}|{{ ([1, 2, 3])[(1):(2)] }}", "{{ (1, 2, 3)[1:] }}",
    "{% for a, b in [(1, 2), (3, 4)] %}{{ a }}{{ b }};{% endfor %}",
    "{% for a, b in {'k': 1}.items() %}{{ a }}{{ b }};{% endfor %}",
    "{{ (1, 2) }}|{{ (1,) }}|{{ () }}|{{ ((1, 'a'), [2]) }}",
    "{{ 'b' in ('a', 'b') }}|{{ 'a'.startswith(('x', 'a')) }}",
    "{% set a, b = 1, ('x', 2) %}{{ a }}{{ b }}",
    "{{ (1, 2)|tojson }}|{{ {'a': (1, 2)} }}|{{ (1, 2)|length }}",
    "{{ range(2, 8, 2) }}|{{ range(5)[1:3] }}|{{ range(5)[::-2]|list }}|"
    "{{ range(3)[-1] }}|{{ range(4, 0, -2)|list }}|{{ 1 in range(2) }}",
    "{{ {'b': 1, 'a': 2, 'C': 3}|dictsort }}|"
    "{{ {'b': 1, 'a': 2, 'C': 3}|dictsort(true) }}|"
    "{{ {'b': 1, 'a': 2}|dictsort(false, 'value', true) }}",
    "{{ '12'|int + 1 }}|{{ '1.9'|int }}|{{ 'x'|int(7) }}|{{ ' 42 '|int }}|"
    "{{ '0x1f'|int(base=16) }}|{{ '-5'|int }}|{{ none|int(3) }}",
    "{{ 3.7|int }}|{{ 3.567|round(2) }}|{{ 3.5|round }}|{{ 2.5|round|int }}|"
    "{{ 2.4|round(method='ceil') }}|{{ 1234|round(-2) }}|{{ 0.5|round }}",
    "{{ 'a-b-c'.rsplit('-', 1) }}|{{ 'a b c'.rsplit(none, 1) }}|"
    "{{ 'a-b-c'.split('-', 1) }}|{{ ' a  b '.split() }}",
    "{{ 'a-b'.partition('-') }}|{{ 'ab'.partition('-') }}|"
    "{{ 'a-b-c'.rpartition('-') }}|{{ 'ab'.rpartition('-') }}",
    "{{ 'abc'.removeprefix('a') }}{{ 'abc'.removesuffix('c') }}",
    "{{ 'a'.zfill(3) }}|{{ '-1'.zfill(4) }}|{{ 'a'.ljust(3) }}x|"
    "{{ 'a'.rjust(3, '.') }}|{{ 'ab'.center(5, '*') }}|{{ 'ab'.center(6) }}",
    "{{ 'éab'.find('b') }}|{{ 'abab'.rfind('a') }}|{{ 'ab'.index('b') }}|"
    "{{ 'ab'.find('x') }}|{{ 'abab'.find('a', 1) }}|{{ 'aXa'.count('a') }}",
    "{{ ''.isdigit() }}{{ '12'.isdigit() }}{{ ''.isalpha() }}"
    "{{ 'aB'.islower() }}{{ 'a1'.islower() }}{{ '1'.isupper() }}"
    "{{ ' '.isspace() }}{{ ''.isspace() }}{{ 'a1'.isalnum() }}",
    "{{ 'a\\nb\\r\\nc'.splitlines() }}|{{ 'a\\n'.splitlines(true) }}",
    "{{ \"they're bill's\".title() }}|{{ \"they're bill's\"|title }}|"
    "{{ 'a-b (c)'|title }}|{{ 'aB'.swapcase() }}|{{ 'ÄB'.casefold() }}",
    "{{ ['a', ['b'], none]|join('-') }}|{{ {'a': 1}|join }}|"
    "{{ [{'a': 1}, {'a': 2}]|join(',', attribute='a') }}",
    "{{ 'xxaxx'|trim('x') }}|{{ '  a '|trim }}|{{ 'aaa'|replace('a', 'b', 2) }}",
    "{{ 'hello world'|truncate(8) }}|{{ 'hello wide world'|truncate(9, leeway=0)"
    " }}|{{ 'hello wide world'|truncate(9, true, '', 0) }}",
    "{{ 'a b&/é'|urlencode }}|{{ {'a b': 'c&'}|urlencode }}",
    "{{ '<a href=\"x\">\\'&'|e }}|{{ '<'|e|e }}|{{ '<'|forceescape }}",
    "{{ '<'|safe + '<' + 'a' }}|{{ '<' + '>'|safe }}|{{ 1 + 2 }}|"
    "{{ ('a'|safe) + '<' }}",
    "{% autoescape true %}{{ '<' }}{{ '<'|safe }}{{ ['\"'] }}{% endautoescape %}"
    "{{ '<' }}",
    "{% set j = joiner('; ') %}{% for i in [1, 2, 3] %}{{ j() }}{{ i }}"
    "{% endfor %}",
    "{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.current }}{{ c.next() }}"
    "{{ c.next() }}",
    "{% macro f(a) %}{{ a }}{{ kwargs.get('z') }}{{ varargs }}{% endmacro %}"
    "{{ f(1, 2, z=3) }}|{{ f(1) }}|{{ f(1, 'x' ~ ['y'], 3) }}",
    "{% macro f(a, b='c') %}{{ a ~ b }}{{ kwargs }}{% endmacro %}"
    "{{ f(1) }}|{{ f(1, b=2) }}|{{ f(1, q=[1]) }}|{{ f(a=4) }}",
    "{% macro f() %}{{ varargs|length }}{% endmacro %}{{ f() }}{{ f(1, 2) }}",
    "{% macro f(a) %}<{{ caller() }}{{ a }}>{% endmacro %}"
    "{% call f(1) %}in{% endcall %}",
    "{% set ns = namespace(l=[]) %}{% for i in [1, 2] %}"
    "{% set ns.l = ns.l + [i] %}{% endfor %}{{ ns.l }}|{{ ns.l|tojson }}",
    "{% set l = [] + ['a'] %}{{ l }}|{{ l|string }}|{{ 'x' ~ l }}",
    "{{ {'z': 1, 'a': {'b': none}}|tojson(indent=2) }}",
    "{{ [3, 1, 2]|sort(reverse=true) }}|{{ ['b', 'A']|sort }}|"
    "{{ [1, 2, 2]|unique|list }}|{{ [1, 2, 3]|batch(2)|list }}",
    "{{ [{'a': 1}, {}]|map(attribute='a', default='z')|list }}|"
    "{{ [{'a': 1}, {}]|selectattr('a')|list }}|"
    "{{ [{'a': 1}, {'a': 2}]|rejectattr('a', 'equalto', 1)|list }}",
    "{{ 'ab'|first }}{{ 'ab'|last }}|{{ {'a': 1, 'b': 2}|last }}",
    "{{ {'a': 1}.copy() }}|{{ ['a', 'b'].index('b') }}|{{ 'ab'.encode() is "
    "defined }}",
    "{{ 1e-7 }}|{{ 123456789.0 }}|{{ 1e16 }}|{{ 100000000000000000000 }}",
    "{% for x in 'ab' %}{{ x }}{{ loop.index }}{% endfor %}",
    "{% for g in [{'r': 'x'}, {'r': 'y'}]|groupby('r') %}{{ g.grouper }}"
    "{{ g.list|length }};{% endfor %}",
]


def snippets():
    for value in VALUES.values():
        for test in TESTS:
            yield f"{{{{ {value} is {test} }}}}"
        for name in FILTERS:
            yield f"{{{{ {value}|{name} }}}}"
        for form in FORMS:
            yield form.replace("V", value)
    yield from OTHERS


def main():
    lines = []
    for snippet in snippets():
        try:
            text = make.compile_template(snippet).render()
        except (jinja2.exceptions.TemplateError, TypeError, ValueError,
                AttributeError):
            continue
        lines.append(json.dumps([snippet, text], ensure_ascii=False))
    (make.HERE / "snippets.json").write_text(
        "[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main()
