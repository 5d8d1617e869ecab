// One message of a conversation on the page.

import {kCutShort} from './api.js';
import {copyButton, el, icon} from './dom.js';
import {MarkdownView} from './markdown.js';

function button(name, label, text, onClick) {
  return el('button', {type: 'button', class: 'quiet', 'aria-label': label,
                       click: onClick}, icon(name), el('span', {}, text));
}

// "212 tokens · 96 tokens/s · first after 84 ms"
function metaText(meta) {
  const parts = [];
  if (meta.tokens !== undefined) {
    parts.push(`${meta.tokens} token${meta.tokens === 1 ? '' : 's'}`);
  }
  if (meta.rate !== undefined) {
    parts.push(`${meta.rate < 10 ? meta.rate.toFixed(1) :
        Math.round(meta.rate)} tokens/s`);
  }
  if (meta.ttft !== undefined) {
    parts.push(meta.ttft < 1000 ? `first after ${Math.round(meta.ttft)} ms` :
        `first after ${(meta.ttft / 1000).toFixed(1)} s`);
  }
  if (meta.finish === 'length') parts.push('cut at the most tokens');
  if (meta.finish === 'stopped') parts.push('stopped');
  return parts.join(' · ');
}

const kTitles = {
  [kCutShort]: 'The answer was cut short',
  0: 'No connection', 400: 'The request was refused',
  401: 'This gateway wants an API key', 404: 'Not found',
  429: 'Too busy right now', 503: 'Not ready',
};

// An error with what can be done about it. actions: {retry, key}.
function errorNode(error, actions) {
  const again = el('button', {type: 'button', class: 'plain',
                              click: actions.retry}, 'Try again');
  const node = el('div', {class: 'error', role: 'alert'},
                  el('strong', {}, (kTitles[error.status] ?? 'It went wrong') +
                     (error.status > 0 ? ` (${error.status})` : '')),
                  el('p', {}, error.message),
                  el('div', {class: 'row'}, again, error.status === 401 &&
                     el('button', {type: 'button', class: 'plain',
                                   click: actions.key}, 'Enter the key')));
  if (error.retryAfter > 0 && error.at) {
    const tick = () => {
      const left = Math.ceil(
          (error.at + error.retryAfter * 1000 - Date.now()) / 1000);
      again.disabled = left > 0;
      again.textContent = left > 0 ? `Try again in ${left} s` : 'Try again';
      if (left > 0 && (node.isConnected || !node.shown)) setTimeout(tick, 250);
      node.shown = true;
    };
    tick();
  }
  return node;
}

// `actions`: edit(text), regenerate(), retry(), key().
export class MessageView {
  constructor(message, actions) {
    this.message = message;
    this.actions = actions;
    const user = message.role === 'user';
    this.body = el('div', {class: 'body'});
    this.meta = el('span', {class: 'meta'});
    this.bar = el('div', {class: 'actions'}, this.meta);
    this.root = el('article', {class: `message ${message.role}`,
                               'aria-label': user ? 'You' : 'Answer'},
                   this.body, this.bar);
    if (user) {
      this.bar.append(button('edit', 'Edit this message', 'Edit',
                             () => this.edit()),
                      copyButton(() => message.content, 'Copy this message'));
      this.body.textContent = message.content;
    } else {
      this.thoughts = el('pre');
      this.reasoning = el('details', {class: 'reasoning', hidden: true},
                          el('summary', {}, 'Reasoning'), this.thoughts);
      this.calls = el('pre', {class: 'calls', hidden: true});
      this.body.before(this.reasoning);
      this.body.after(this.calls);
      this.markdown = new MarkdownView(this.body);
      this.bar.append(
          copyButton(() => message.content, 'Copy this answer'),
          button('again', 'Answer again', 'Regenerate', actions.regenerate));
      this.update(false);
    }
  }

  // Shows the answer as it is by now.
  update(streaming) {
    this.root.classList.toggle('streaming', streaming);
    this.root.setAttribute('aria-busy', String(streaming));
    this.root.classList.toggle('empty', this.message.content === '' &&
        !this.message.reasoning && !this.message.calls);
    this.markdown.show(this.message.content, streaming);
    const {reasoning = '', calls = []} = this.message;
    this.reasoning.hidden = reasoning === '';
    this.thoughts.textContent = reasoning;
    this.calls.hidden = calls.length === 0;
    this.calls.textContent = calls.map(
        (call) => `${call.name}(${call.arguments})`).join('\n');
    this.meta.textContent = metaText(this.message.meta ?? {});
    this.failure?.remove();
    if (this.message.error) {
      this.failure = errorNode(this.message.error, this.actions);
      this.bar.before(this.failure);
    }
  }

  // Turns the message into a field; Enter sends it anew, Esc leaves it.
  edit() {
    const area = el('textarea', {
      class: 'edit', rows: 3, 'aria-label': 'Edit your message',
      keydown: (event) => {
        if (event.key === 'Escape') {
          event.stopPropagation();
          close();
        } else if (event.key === 'Enter' && !event.shiftKey &&
                   !event.isComposing) {
          event.preventDefault();
          done();
        }
      },
    });
    area.value = this.message.content;
    const close = () => {
      form.replaceWith(this.body);
      this.bar.hidden = false;
      this.bar.querySelector('button').focus();
    };
    const done = () => {
      const text = area.value.trim();
      if (text) this.actions.edit(text);
      else close();
    };
    const form = el('div', {class: 'editor'}, area, el('div', {class: 'row'},
        el('button', {type: 'button', class: 'plain', click: close}, 'Cancel'),
        el('button', {type: 'button', class: 'primary', click: done}, 'Send')));
    this.body.replaceWith(form);
    this.bar.hidden = true;
    area.focus();
  }
}
