// Writes what node says of patterns and texts, for the tests of the translation
// in common/text/bridge: node ecma_pattern_cases.js > ecma_pattern_cases.json
'use strict';

const TEXTS = [
  '', 'a', 'b', 'ab', 'aab', 'abc', 'A', 'B', 'z', 'Z', '_', '-', '+', ',', '.',
  '&', '~', '[', ']', '{', '}', '(', ')', '^', '$', '|', '\\', '/', '*', '?',
  ' ', '\t', '\n', '\r', '\v', '\f', '\0', '\x07', '\x08', '\x1b', '\x85',
  '\xa0', '\u1680', '\u180e', '\u2003', '\u200b', '\u2028', '\u2029', '\u202f',
  '\u205f', '\u3000', '\ufeff', '0', '7', '09', '123', '\u0663', '\xe9', '\u0301',
  '\u03b1\u03c9', '\u{1f600}', '\u{1f600}\u{1f601}', 'a\nb', 'a\rb', 'a{', 'a{2',
  'x{,3}', 'xxx', 'aa', 'aaa', 'u0061', 'https://a', '2023-01-01', 'a-b', 'b,',
  'a b', '\ud7ff', '\ue000', 'aXb', '\\c', 'k', 'p', 'd5', '\u017f', '\u212a',
];

const WRITTEN = [
  '.', '^.$', '\\s', '^\\s$', '\\S', '^\\S$', '\\d', '^\\D$', '\\w', '^\\W$',
  '[+--]', '^[+--]$', '[a&&b]', '^[a&&b]$', '[a~~b]', '[[]', '[a-]',
  '[-a]', '[\\w-]', '[]', '[^]', '^[^]$', '[^^]', '[&&&&]', '[a[b]', '[a[b]]',
  '[\\]]', '[\\\\]', '[\\b]', '[\\s\\S]', '^[^\\s]$', '[^\\d\\w]', '[\\D]',
  '\\/', '\\cJ', '\\cj', '\\0', '\\x41', '\\u0041', '\\ud83d\\ude00', '\\u{1f600}',
  '^\\u{1F600}$', '[\\ud83d\\ude00-\\ud83d\\ude01]', '[\u{1f600}-\u{1f601}]',
  'x{,3}', 'a{', 'a{2', 'a{2}', '^a{2}$', 'a{1,2}', '^a{1,2}$', 'a{2,}', 'a{}',
  '{', '}', ']', 'a{,}', '^a??$', 'a+?b', '(?<name>a)b', '(?<$x_1>a)', '(?:a|b)c?',
  '^(a|b)$', '^a|b$', '^(?:a|b)+$', 'a|', '|a', '', '^$', '^', '$', '(^a|b)',
  '(a$|b)', '()', '(?:)', '(?:)*', '\\^', '\\$', '\\.', '\\*', '\\-', '\\ ', '\\"',
  '\\_', '\\p{L}', '^\\p{Lu}$', '\\P{L}', '\\p{Script=Greek}', '[\\p{L}\\d]',
  '[^\\p{L}]', '\\p{ASCII}', '[α-ω]{2}', '\\t', '\\n', '\\v', '\\f', '\\r',
  '\\x0a', '[\\x00-\\x1f]', '[\\cA-\\cZ]', '[\\u2028\\u2029]', '^https?:\\/\\/',
  '^[0-9]{4}-[0-9]{2}-[0-9]{2}$', '^\\d{4}$', '#', '^#$', 'a#b', '(?:a#)', ' ',
  '[ ]', '^[^/]+$', '[/]', 'a/b', "'", '"', '%', '[!-~]', '^[!-~]+$', '[^a-z]',
];

const WRONG = [
  '(', ')', '[', 'a**', 'a{2}{3}', '*', '+a', '?', '{2}', 'a{3,2}', '[b-a]', '\\',
  '(?<a', '(?<1>a)', '(?a)', '(?P<n>a)', '(?i)a', '[z-\\x41]', '[a--b]', '^*',
  'a|*', '(?',
];

// A fixed sequence of numbers.
let state = 12345;
function below(end) {
  state = (Math.imul(state, 1103515245) + 12345) >>> 0;
  return (state >>> 8) % end;
}
const pick = (all) => all[below(all.length)];

const CHARS = ['a', 'b', 'z', 'A', '0', '7', '-', '&', '~', '[', '+', ',', '.', '^',
  '|', ' ', '_', '/', '{', '}', '(', ')', '*', '?', '$', '\u03b1', '\u{1f600}'];
const ESCAPES = ['\\d', '\\D', '\\w', '\\W', '\\s', '\\S', '\\n', '\\t', '\\x41',
  '\\u0062', '\\.', '\\]', '\\\\', '\\-', '\\^', '\\/', '\\0', '\\cJ'];
function classAtom() {
  return pick([() => pick(CHARS), () => pick(CHARS), () => pick(ESCAPES)])();
}
function makeClass() {
  let out = pick(['[', '[', '[^']);
  for (let count = below(4); count >= 0; --count) {
    out += classAtom();
    if (below(4) === 0) out += '-' + classAtom();
  }
  return out + ']';
}
function atom(levels) {
  return pick([
    () => pick('abzA07_ -,/&~#'.split('')),
    () => pick('abzA07_ -,/&~#'.split('')),
    () => '.', () => pick(ESCAPES), makeClass, makeClass,
    () => (levels > 0 ? pick(['(', '(?:', '(?<n' + below(1e6) + '>']) +
        expression(levels - 1) + ')' : 'b'),
  ])();
}
function expression(levels) {
  let out = '';
  for (let count = below(3); count >= 0; --count) {
    out += atom(levels);
    if (below(3) === 0) {
      out += pick(['*', '+', '?', '{2}', '{1,2}', '{2,}', '{', '{,2}', '*?']);
    }
  }
  return below(4) === 0 ? out + '|' + atom(levels) : out;
}
function generated() {
  const inner = expression(2);
  return pick([inner, inner, '^' + inner, inner + '$', '^(?:' + inner + ')$']);
}

// Without the flag u a character beyond the BMP is two, which here is one:
// then nothing is said ("?") where such a character is.
const isWide = (text) => /[\ud800-\udfff]/.test(text);

function verdicts(pattern) {
  for (const flags of ['u', '']) {
    let made;
    try {
      made = new RegExp(pattern, flags);
    } catch (error) {
      continue;
    }
    const isNarrow = flags === '';
    return TEXTS.map((text) => {
      if (isNarrow && (isWide(text) || isWide(pattern))) return '?';
      return made.test(text) ? '1' : '0';
    }).join('');
  }
  return null;
}

const lines = [];
const add = (pattern, kind) =>
  lines.push(JSON.stringify([kind, pattern, verdicts(pattern)]));
WRITTEN.forEach((pattern) => add(pattern, 'written'));
WRONG.forEach((pattern) => add(pattern, 'wrong'));
for (let i = 0; i < 1200; ++i) add(generated(), 'drawn');
const ascii = (text) => text.replace(/[^\x20-\x7e]/g,
  (c) => '\\u' + c.charCodeAt(0).toString(16).padStart(4, '0'));
process.stdout.write(ascii(JSON.stringify(TEXTS)) + '\n' +
  lines.map(ascii).join('\n') + '\n');
