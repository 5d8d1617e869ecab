// Markdown to nodes, for untrusted text: marked reads it, DOMPurify lets the
// elements and attributes named here through, highlight.js colours code. What
// looks like HTML stays text, and nothing is loaded: a picture becomes a link.

import {copyButton, el} from './dom.js';
import hljs from './third_party/highlight.min.js';
import {Marked, Renderer, Tokenizer} from './third_party/marked.esm.js';
import './third_party/purify.min.js';  // sets DOMPurify

const kReach = 1000;  // characters of the longest emphasis, code or bare address
const kMaxColoured = 10000;  // characters; longer code stays plain
const kLongLine = /[^\n]{501}/;  // and code with such a line
const kMaxMs = 250;  // of one text; a grammar that takes longer is dropped

// The tokenizer of that name, which sees no more than kReach characters: else a
// hostile paragraph needs time that grows with the square of its length.
function near(name) {
  return function(text, masked = '', ...rest) {
    const at = masked.length - text.length;
    return Tokenizer.prototype[name].call(
        this, text.slice(0, kReach),
        masked.slice(Math.max(0, at - 99), at + kReach), ...rest);
  };
}

const emphasis = near('emStrong');
const address = near('url');
const kCutAddress = new RegExp(`^[^\\s<]{${kReach + 1}}`);
let insideLink = false;  // while a link's text is rendered

const markdown = new Marked({
  breaks: true,
  // A tokenizer that gives nothing is off. With lheading a paragraph would be a
  // heading for a moment when a list behind it begins with its "-"; with def
  // the end of a text would change the blocks before it.
  tokenizer: {
    html() {}, tag() {}, lheading() {}, def() {}, reflink() {},
    br: near('br'), codespan: near('codespan'), del: near('del'),
    inlineText: near('inlineText'),
    url: function (text, ...rest) {
      const token = address.call(this, text, ...rest);
      return token && kCutAddress.test(text) ? undefined : token;
    },
    emStrong(text, masked, before) {
      const product = /^\*[^*]/.test(text) && /\w$/.test(before);  // 2*3*4
      return product ? undefined : emphasis.call(this, text, masked, before);
    },
  },
  renderer: {
    // The page itself has headings of the first two levels.
    heading({tokens, depth}) {
      const tag = `h${Math.min(depth + 2, 6)}`;
      const inner = this.parser.parseInline(tokens);
      return `<${tag} class="h${depth}">${inner}</${tag}>`;
    },
    // HTML has no link inside a link: the inner one is its text.
    link(token) {
      if (insideLink) return this.parser.parseInline(token.tokens);
      insideLink = true;
      try {
        return Renderer.prototype.link.call(this, token);
      } finally {
        insideLink = false;
      }
    },
    image({href, title, text}) {
      return this.link({href, title, tokens: [{type: 'text', text}]});
    },
    checkbox({checked}) { return checked ? '☑ ' : '☐ '; },
  },
});

DOMPurify.setConfig({
  ALLOWED_TAGS: [
    'a', 'blockquote', 'br', 'code', 'del', 'em', 'h3', 'h4', 'h5', 'h6', 'hr',
    'li', 'ol', 'p', 'pre', 'span', 'strong', 'table', 'tbody', 'td', 'th',
    'thead', 'tr', 'ul', '#text',
  ],
  ALLOWED_ATTR: ['align', 'class', 'href', 'start'],
  ADD_URI_SAFE_ATTR: ['align', 'start'],
  ALLOWED_URI_REGEXP: /^https?:\/\//i,
  ALLOW_ARIA_ATTR: false,
  ALLOW_DATA_ATTR: false,
  RETURN_DOM_FRAGMENT: true,
});
DOMPurify.addHook('afterSanitizeAttributes', (node) => {
  if (node.tagName !== 'A' || !node.hasAttribute('href')) return;
  node.setAttribute('target', '_blank');
  node.setAttribute('rel', 'noopener noreferrer nofollow');
});

// Two grammars that need seconds for some short texts. Plain is what Markdown was
// read from; a shell's session is coloured as its commands are.
hljs.unregisterLanguage('markdown');
hljs.unregisterLanguage('shell');
hljs.registerAliases(['shell', 'console'], {languageName: 'bash'});

// Drops the grammar of a name or an alias.
function dropGrammar(language) {
  const grammar = hljs.getLanguage(language);
  hljs.listLanguages().filter(name => hljs.getLanguage(name) === grammar)
      .forEach(hljs.unregisterLanguage);
}

// `code` as a node or a string.
function highlighted(code, language) {
  if (code.length > kMaxColoured || kLongLine.test(code) ||
      !hljs.getLanguage(language)) {
    return code;
  }
  const begin = performance.now();
  const {value} = hljs.highlight(code, {language, ignoreIllegals: true});
  if (performance.now() - begin > kMaxMs) dropGrammar(language);
  return DOMPurify.sanitize(value);
}

function codeFigure(code) {
  const text = code.textContent.replace(/\n$/, '');
  const language = code.className.replace(/^language-/, '').slice(0, 30);
  code.parentNode.replaceWith(
      el('figure', {class: 'code'},
         el('figcaption', {}, el('span', {}, language || 'text'),
            copyButton(() => text, 'Copy this code')),
         el('pre', {tabindex: '0'},
            el('code', {}, highlighted(text, language)))));
}

function tableBox(table) {
  const box = el('div', {class: 'table', tabindex: '0'});
  table.replaceWith(box);
  box.append(table);
}

// The blocks of `text` from `from` on, each with its source and its end.
function read(text, from) {
  const rest = text.slice(from);
  let tokens = [{raw: rest}];
  try {
    tokens = markdown.lexer(rest);
  } catch {}  // It nests too deep for marked's recursion.
  let end = from;
  return tokens.map((token) => ({token, raw: token.raw,
                                 end: end += token.raw.length}))
      .filter(({token}) => token.type !== 'space');
}

// The element of a block; what marked cannot read is plain text.
function element({token}) {
  try {
    const nodes = DOMPurify.sanitize(markdown.parser([token]));
    nodes.querySelectorAll('table').forEach(tableBox);
    nodes.querySelectorAll('pre > code').forEach(codeFigure);
    if (nodes.childElementCount === 1) return nodes.firstElementChild;
  } catch {}
  return el('p', {}, token.raw);
}

// Shows a text that grows inside `root`; blocks that stay are left alone.
export class MarkdownView {
  constructor(root) {
    this.root = root;
    this.text = '';
    this.blocks = [];
  }

  // `grows`: more will follow. Then only the end is read again: a line that
  // grows can still join the block before it, hardly ever another.
  show(text, grows) {
    text = text.replace(/\r\n?/g, '\n');
    let kept = grows ? this.blocks.slice(0, -2) : [];
    let from = kept.at(-1)?.end ?? 0;
    if (text.slice(0, from) !== this.text.slice(0, from)) [kept, from] = [[], 0];
    const blocks = [...kept, ...read(text, from)];
    let same = kept.length;
    while (same < blocks.length && blocks[same].raw === this.blocks[same]?.raw) {
      ++same;
    }
    while (this.root.childNodes.length > same) this.root.lastChild.remove();
    this.root.append(...blocks.slice(same).map(element));
    this.blocks = blocks;
    this.text = text;
  }
}
