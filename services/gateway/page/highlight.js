// A little colour for code: comments, strings, numbers and common keywords,
// told apart the same way in every language.

import {el} from './dom.js';

const kMaxLength = 20000;  // longer code stays plain

const kWords = new Set((
  'abstract and as assert async await auto bool boolean break case catch ' +
  'char class const constexpr continue def default defer del delete do ' +
  'double elif else elsif end enum except export extends extern false False ' +
  'final finally float fn for foreach from func function go goto if impl ' +
  'implements import in include inline instanceof int interface is lambda ' +
  'let long loop match mod module mut namespace new nil None nonlocal not ' +
  'null nullptr operator or override package pass private protected pub ' +
  'public raise return self short signed sizeof static struct super switch ' +
  'template then this throw throws trait true True try type typedef typeof ' +
  'union unsigned until use using val var virtual void volatile where while ' +
  'with yield SELECT FROM WHERE INSERT INTO VALUES UPDATE SET CREATE TABLE ' +
  'JOIN ON GROUP BY ORDER LIMIT AND OR NOT NULL AS echo fi done esac local'
).split(' '));

const kHashComments = new Set(['', 'bash', 'sh', 'shell', 'python', 'py',
  'ruby', 'rb', 'yaml', 'yml', 'toml', 'perl', 'r', 'make', 'makefile',
  'cmake', 'dockerfile', 'console', 'conf', 'ini', 'elixir', 'julia']);
const kPlain = new Set(['text', 'txt', 'plain', 'output', 'markdown', 'md']);

const kStrings = [
  /"""[^]*?"""/, /"(?:\\.|[^"\\\n])*"/, /'(?:\\.|[^'\\\n])*'/,
  /`(?:\\.|[^`\\])*`/,
].map((part) => part.source).join('|');
const kNumbers =
    /\b(?:0[xX][0-9a-fA-F]+|\d[\d_]*(?:\.\d+)?(?:[eE][-+]?\d+)?)\b/.source;
const kNames = /[A-Za-z_]\w*/.source;

function pattern(language) {
  const comments = kHashComments.has(language) ? '#[^\\n]*' :
      language === 'sql' || language === 'lua' || language === 'haskell' ?
      '--[^\\n]*' : '\\/\\/[^\\n]*|\\/\\*[^]*?\\*\\/';
  return new RegExp(
      `(${comments})|(${kStrings})|(${kNumbers})|(${kNames})`, 'g');
}

// `code` as a list of nodes and strings.
export function highlighted(code, language) {
  const name = language.toLowerCase();
  if (code.length > kMaxLength || kPlain.has(name)) return [code];
  const out = [];
  let done = 0;
  const put = (match, kind) => {
    if (match.index > done) out.push(code.slice(done, match.index));
    out.push(el('span', {class: `code-${kind}`}, match[0]));
    done = match.index + match[0].length;
  };
  for (const match of code.matchAll(pattern(name))) {
    if (match[1] !== undefined) put(match, 'comment');
    else if (match[2] !== undefined) put(match, 'string');
    else if (match[3] !== undefined) put(match, 'number');
    else if (kWords.has(match[4])) put(match, 'word');
  }
  if (done < code.length) out.push(code.slice(done));
  return out;
}
