// Building the page's nodes. Text only ever enters as text nodes: markdown.js
// alone has HTML parsed, by DOMPurify, and the Content-Security-Policy forbids
// it to all other code.

const SVG = 'http://www.w3.org/2000/svg';

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (typeof value === 'function') node.addEventListener(name, value);
    else node.setAttribute(name, value === true ? '' : value);
  }
  for (const child of children) {
    if (child !== undefined && child !== null && child !== false) {
      node.append(child);
    }
  }
  return node;
}

// An element. A function as an attribute's value listens to that event.
export function el(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

// An element of SVG.
export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

// One of the symbols of index.html; decoration, so hidden from readers.
export function icon(name) {
  return svg('svg', {class: 'icon', 'aria-hidden': 'true'},
             svg('use', {href: `#i-${name}`}));
}

export function byId(id) {
  return document.getElementById(id);
}

// Says `text` to screen readers.
export function announce(text) {
  byId('live').textContent = text;
}

// Copies, also where there is no secure context (http:// over a network).
export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = el('textarea', {class: 'offscreen', 'aria-hidden': 'true'});
    area.value = text;
    const focused = document.activeElement;
    document.body.append(area);
    area.select();
    const copied = document.execCommand('copy');
    area.remove();
    focused?.focus?.();
    return copied;
  }
}

// A button that copies what `text()` gives and says so for a moment.
export function copyButton(text, label) {
  const shown = el('span', {}, 'Copy');
  const button = el('button', {
    type: 'button', class: 'quiet', 'aria-label': label,
    click: async () => {
      const copied = await copyText(text());
      shown.textContent = copied ? 'Copied' : 'Not allowed';
      announce(copied ? 'Copied' : 'The browser does not allow copying');
      setTimeout(() => { shown.textContent = 'Copy'; }, 1500);
    },
  }, icon('copy'), shown);
  return button;
}
