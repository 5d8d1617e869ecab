// Markdown to nodes, for untrusted text: no HTML, no images, no links but http
// and https. What looks like HTML stays text.
//
// A text is cut into blocks first, so that a growing answer redraws its last
// block alone (MarkdownView). Inline patterns look at most kReach characters
// ahead: hostile text costs time in proportion to its length.

import {copyButton, el} from './dom.js';
import {highlighted} from './highlight.js';

const kMaxDepth = 8;  // of quotes and lists within each other

const kFence = /^( {0,3})(`{3,}|~{3,})[ \t]*([^`]*)$/;
const kHeading = /^ {0,3}(#{1,6})[ \t]+(.*)$/;
const kRule = /^ {0,3}([-*_])(?:[ \t]*\1){2,}[ \t]*$/;
const kQuote = /^ {0,3}> ?/;
const kItem = /^( *)([-*+]|\d{1,9}[.)])(?:[ \t]+(.*)|[ \t]*)$/;

const isBlank = (line) => line.trim() === '';

function cells(line) {
  return line.trim().replace(/^\|/, '').replace(/(?<!\\)\|$/, '')
      .split(/(?<!\\)\|/).map((cell) => cell.trim().replace(/\\\|/g, '|'));
}

function startsTable(lines, i) {
  return lines[i].includes('|') && i + 1 < lines.length &&
      lines[i + 1].includes('|') &&
      cells(lines[i + 1]).every((cell) => /^:?-+:?$/.test(cell));
}

function interruptsParagraph(lines, i) {
  const line = lines[i];
  const item = kItem.exec(line);
  return kFence.test(line) || kHeading.test(line) || kRule.test(line) ||
      kQuote.test(line) || startsTable(lines, i) ||
      (item !== null && item[3] !== undefined &&
       /^([-*+]|1[.)])$/.test(item[2]));
}

// Readers: each takes the block that begins at line `i` and gives it with the
// line after it.

function readFence(lines, i, fence) {
  const [, indent, marks, info] = fence;
  const close = new RegExp(`^ {0,3}${marks[0]}{${marks.length},}[ \\t]*$`);
  const margin = new RegExp(`^ {0,${indent.length}}`);
  const code = [];
  let at = i + 1;
  for (; at < lines.length && !close.test(lines[at]); ++at) {
    code.push(lines[at].replace(margin, ''));
  }
  const language = info.trim().split(/\s/)[0].slice(0, 30);
  return [{kind: 'code', language, text: code.join('\n')}, at + 1];
}

function readQuote(lines, i, depth) {
  const inner = [];
  let at = i;
  for (; at < lines.length && kQuote.test(lines[at]); ++at) {
    inner.push(lines[at].replace(kQuote, ''));
  }
  return [{kind: 'quote', blocks: read(inner, depth + 1)}, at];
}

function readTable(lines, i) {
  const align = cells(lines[i + 1]).map((cell) =>
    cell.endsWith(':') ? (cell.startsWith(':') ? 'center' : 'right') : 'left');
  const rows = [];
  let at = i + 2;
  for (; at < lines.length && lines[at].includes('|'); ++at) {
    rows.push(cells(lines[at]));
  }
  return [{kind: 'table', head: cells(lines[i]), align, rows}, at];
}

function readList(lines, i, depth) {
  const first = kItem.exec(lines[i]);
  const base = first[1].length;
  const ordered = /\d/.test(first[2]);
  const items = [];
  let at = i;
  let inner = null;
  let width = 0;
  for (; at < lines.length; ++at) {
    const line = lines[at];
    if (isBlank(line)) {
      const next = lines.slice(at + 1).find((other) => !isBlank(other));
      if (next === undefined) break;
      const goesOn = next.search(/\S/) >= width ||
          (kItem.test(next) && /\d/.test(kItem.exec(next)[2]) === ordered);
      if (!goesOn) break;
      inner.push('');
      continue;
    }
    const indent = line.search(/\S/);
    const item = kItem.exec(line);
    if (item !== null && indent < base + 2 && !kRule.test(line)) {
      if (/\d/.test(item[2]) !== ordered) break;
      width = indent + item[2].length + 1;
      inner = [item[3] ?? ''];
      items.push(inner);
    } else if (indent >= Math.min(width, base + 2)) {
      inner.push(line.slice(Math.min(indent, width)));
    } else if (isBlank(lines[at - 1]) || interruptsParagraph(lines, at)) {
      break;
    } else {
      inner.push(line);
    }
  }
  return [{
    kind: 'list', ordered, start: ordered ? parseInt(first[2], 10) : 1,
    items: items.map((item) => read(item, depth + 1)),
  }, at];
}

function readParagraph(lines, i) {
  let at = i + 1;
  while (at < lines.length && !isBlank(lines[at]) &&
         !interruptsParagraph(lines, at)) {
    ++at;
  }
  return [{kind: 'paragraph', text: lines.slice(i, at).join('\n').trim()}, at];
}

function readBlock(lines, i, depth) {
  const line = lines[i];
  const fence = kFence.exec(line);
  if (fence !== null) return readFence(lines, i, fence);
  const heading = kHeading.exec(line);
  if (heading !== null) {
    const text = heading[2].trimEnd();
    const open = text.split('').findLastIndex((char) => char !== '#') + 1;
    return [{kind: 'heading', level: heading[1].length,
             text: text.slice(0, open).trimEnd()}, i + 1];
  }
  if (kRule.test(line)) return [{kind: 'rule'}, i + 1];
  if (depth < kMaxDepth) {
    if (kQuote.test(line)) return readQuote(lines, i, depth);
    if (kItem.test(line)) return readList(lines, i, depth);
  }
  if (startsTable(lines, i)) return readTable(lines, i);
  return readParagraph(lines, i);
}

function read(lines, depth) {
  const blocks = [];
  let i = 0;
  while (i < lines.length) {
    if (isBlank(lines[i])) {
      ++i;
      continue;
    }
    const [block, next] = readBlock(lines, i, depth);
    block.source = lines.slice(i, next).join('\n');
    blocks.push(block);
    i = next;
  }
  return blocks;
}

// The blocks of `text`, each with the `source` it was read from.
export function parseBlocks(text) {
  return read(text.replace(/\r\n?/g, '\n').replace(/\t/g, '    ').split('\n'),
              0);
}

// Inline ----------------------------------------------------------------------

const kInline = new RegExp([
  /\\([\\`*_{}[\]()#+\-.!|>~<])/,                             // 1 escaped
  /(`{1,3})(?!`)([^\n]{1,1000}?)(?<!`)\2(?!`)/,               // 2, 3 code
  /!?\[([^[\]\n]{1,1000})\]\(([^\s()<>]{1,2000})(?: "[^"\n]{0,200}")?\)/,
  /(\*\*|__)(?=\S)([^\n]{1,1000}?)(?<=\S)\6(?!\*)/,           // 6, 7 bold
  /~~(?=\S)([^\n]{1,1000}?)~~/,                               // 8 struck
  /(?<![\w*])\*(?=[^\s*])([^\n*]{1,1000}?)(?<=\S)\*(?!\*)/,   // 9 italic
  /(?<![\w_])_(?=[^\s_])([^\n_]{1,1000}?)(?<=\S)_(?!\w)/,     // 10 italic
  /\b(https?:\/\/[^\s<>"'`]{1,1000}[^\s<>"'`.,;:!?)\]*_~])/,  // 11 address
  /(\n)/,                                                     // 12 break
].map((part) => part.source).join('|'), 'g');

// `address` if a link may lead there, else null.
export function safeAddress(address) {
  try {
    const url = new URL(address);
    return url.protocol === 'http:' || url.protocol === 'https:' ?
        url.href : null;
  } catch {
    return null;
  }
}

function link(address, ...children) {
  const href = safeAddress(address);
  if (href === null) return el('span', {}, ...children);
  return el('a', {href, target: '_blank', rel: 'noopener noreferrer nofollow'},
            ...children);
}

function inlineNode(match, depth) {
  const inner = (text) => inline(text, depth + 1);
  if (match[1] !== undefined) return match[1];
  if (match[3] !== undefined) {
    return el('code', {}, match[3].trim() || match[3]);
  }
  if (match[4] !== undefined) return link(match[5], ...inner(match[4]));
  if (match[7] !== undefined) return el('strong', {}, ...inner(match[7]));
  if (match[8] !== undefined) return el('del', {}, ...inner(match[8]));
  if (match[9] !== undefined) return el('em', {}, ...inner(match[9]));
  if (match[10] !== undefined) return el('em', {}, ...inner(match[10]));
  if (match[11] !== undefined) return link(match[11], match[11]);
  return el('br');
}

// `text` as a list of nodes and strings.
function inline(text, depth = 0) {
  if (depth > kMaxDepth) return [text];
  const out = [];
  let done = 0;
  for (const match of text.matchAll(kInline)) {
    if (match.index > done) out.push(text.slice(done, match.index));
    out.push(inlineNode(match, depth));
    done = match.index + match[0].length;
  }
  if (done < text.length) out.push(text.slice(done));
  return out;
}

// Blocks to nodes -------------------------------------------------------------

function codeNode(block) {
  return el('figure', {class: 'code'},
            el('figcaption', {}, el('span', {}, block.language || 'text'),
               copyButton(() => block.text, 'Copy this code')),
            el('pre', {tabindex: '0'},
               el('code', {}, ...highlighted(block.text, block.language))));
}

function tableNode(block) {
  const row = (texts, tag) => el('tr', {}, ...block.head.map((_, i) =>
    el(tag, {class: `at-${block.align[i] ?? 'left'}`},
       ...inline(texts[i] ?? ''))));
  return el('div', {class: 'table', tabindex: '0'},
            el('table', {}, el('thead', {}, row(block.head, 'th')),
               el('tbody', {},
                  ...block.rows.map((texts) => row(texts, 'td')))));
}

function itemNode(blocks) {
  // A single paragraph, also before a nested list, stands without its own p.
  return el('li', {}, ...blocks.flatMap((block, i) =>
    i === 0 && block.kind === 'paragraph' ? inline(block.text) :
        [blockNode(block)]));
}

// The node of one block.
export function blockNode(block) {
  switch (block.kind) {
    case 'code': return codeNode(block);
    case 'heading': return el(`h${Math.min(block.level + 2, 6)}`,
                              {class: `h${block.level}`},
                              ...inline(block.text));
    case 'rule': return el('hr');
    case 'quote': return el('blockquote', {}, ...block.blocks.map(blockNode));
    case 'table': return tableNode(block);
    case 'list': return el(block.ordered ? 'ol' : 'ul',
                           {start: block.ordered && block.start !== 1 ?
                               block.start : null},
                           ...block.items.map(itemNode));
    default: return el('p', {}, ...inline(block.text));
  }
}

// Shows a text that grows inside `root`; blocks that stay are left alone.
export class MarkdownView {
  constructor(root) {
    this.root = root;
    this.sources = [];
  }

  show(text) {
    const blocks = parseBlocks(text);
    let same = 0;
    while (same < blocks.length && same < this.sources.length &&
           blocks[same].source === this.sources[same]) {
      ++same;
    }
    while (this.root.childNodes.length > same) this.root.lastChild.remove();
    this.root.append(...blocks.slice(same).map(blockNode));
    this.sources = blocks.map((block) => block.source);
  }
}
