// One message of a conversation on the page.

import {kCutShort} from './api.js';
import {copyButton, el, icon} from './dom.js';
import {MarkdownView} from './markdown.js';
import {bytes, seconds} from './picture.js';

const kPauseMs = 1000;  // shorter pauses between tokens are not told of

function button(name, label, text, onClick) {
  return el('button', {type: 'button', class: 'quiet', 'aria-label': label,
                       click: onClick}, icon(name), el('span', {}, text));
}

// "212 tokens · 96 tokens/s · first after 84 ms · prompt of 40, 32 cached"
function metaText(meta) {
  const parts = [];
  if (meta.tokens !== undefined) {
    parts.push(`${meta.tokens} token${meta.tokens === 1 ? '' : 's'}`);
  }
  if (meta.rate !== undefined) {
    parts.push(`${meta.rate < 10 ? meta.rate.toFixed(1) :
        Math.round(meta.rate)} tokens/s`);
  }
  if (meta.ttft !== undefined) parts.push(`first after ${seconds(meta.ttft)}`);
  if (meta.prompt !== undefined) {
    parts.push(`prompt of ${meta.prompt}` +
               (meta.cached > 0 ? `, ${meta.cached} cached` : ''));
  }
  if (meta.pause > kPauseMs) parts.push(`longest pause ${seconds(meta.pause)}`);
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

// An error with what can be done about it. actions: {retry, key, settings}.
function errorNode(error, actions) {
  const again = el('button', {type: 'button', class: 'plain',
                              click: actions.retry}, 'Try again');
  const node = el('div', {class: 'error', role: 'alert'},
                  el('strong', {}, (kTitles[error.status] ?? 'It went wrong') +
                     (error.status > 0 ? ` (${error.status})` : '')),
                  el('p', {}, error.message),
                  el('div', {class: 'row'}, again, error.status === 401 &&
                     el('button', {type: 'button', class: 'plain',
                                   click: actions.key}, 'Enter the key'),
                     error.settings && el('button', {
                       type: 'button', class: 'plain',
                       click: actions.settings}, 'Open the settings')));
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

function fileNode({name, text}) {
  return el('details', {class: 'file'},
            el('summary', {}, `${name} · ${bytes(text.length)}`),
            el('pre', {tabindex: '0'}, text));
}

// "{...}" with line feeds; what is no JSON (yet) as it is.
function readable(json) {
  try {
    return JSON.stringify(JSON.parse(json), null, 2);
  } catch {
    return json;
  }
}

// The calls of tools that an answer has, and fields for their results.
class CallsView {
  // answer(results): sends a text per call.
  constructor(answer) {
    this.answer = answer;
    this.list = el('div');
    this.root = el('div', {class: 'calls', hidden: true}, this.list);
    this.shown = [];  // views of the arguments
    this.form = null;
  }

  show(calls) {
    this.root.hidden = calls.length === 0;
    calls.forEach(({name, arguments: text}, i) => {
      this.shown[i] ??= new MarkdownView(this.list.appendChild(
          el('div', {class: 'body call', role: 'group',
                     'aria-label': `Call of ${name}`},
             el('p', {class: 'muted'}, 'Calls ', el('strong', {}, name)),
             el('div'))).lastChild);
      this.shown[i].show(`~~~~~~json\n${readable(text)}\n~~~~~~`, false);
    });
  }

  // Asks for the calls' results; `calls` is empty where they cannot be given.
  ask(calls) {
    if (calls.length > 0 && this.form) return;  // what is typed stays
    this.form?.remove();
    this.form = null;
    if (calls.length === 0) return;
    const fields = calls.map(({name}, i) => el('textarea', {
      rows: 2, class: 'edit',
      'aria-label': `Result of ${name}` + (calls.length > 1 ?
          `, call ${i + 1} of ${calls.length}` : ''),
      placeholder: `What ${name} gives`,
    }));
    this.form = el('div', {class: 'editor'}, ...fields,
        el('div', {class: 'row'}, el('button', {
          type: 'button', class: 'primary',
          click: () => this.answer(fields.map((field) => field.value)),
        }, calls.length > 1 ? 'Send the results' : 'Send the result')));
    this.root.append(this.form);
  }
}

const kLabels = {user: 'You', assistant: 'Answer', tool: 'Result of a call'};

// `actions`: edit(text), regenerate(), retry(), key(), settings(), goOn(),
// turn(step), results(texts), time().
export class MessageView {
  // versions: [which of how many] of the message, from 1.
  constructor(message, actions, versions) {
    this.message = message;
    this.actions = actions;
    this.body = el('div', {class: 'body'});
    this.meta = el('span', {class: 'meta'});
    this.bar = el('div', {class: 'actions'}, this.meta);
    this.root = el('article', {class: `message ${message.role}`,
                               'aria-label': kLabels[message.role]},
                   this.body, this.bar);
    if (message.role === 'assistant') this.fillAnswer();
    else this.fillText();
    this.showVersions(versions);
  }

  fillText() {
    const {message} = this;
    this.body.textContent = message.content;
    this.body.hidden = message.content === '';
    if (message.files?.length) {
      this.body.before(el('div', {class: 'files'},
                          ...message.files.map(fileNode)));
    }
    if (message.role === 'user') {
      this.bar.append(button('edit', 'Edit this message', 'Edit',
                             () => this.edit()));
    } else {
      this.body.before(el('p', {class: 'muted'}, `Result of ${message.name ??
          'a call'}`));
    }
    this.bar.append(copyButton(() => message.content, 'Copy this message'));
  }

  fillAnswer() {
    const {message, actions} = this;
    this.thoughts = el('pre');
    this.thinking = el('summary');
    this.reasoning = el('details', {class: 'reasoning', hidden: true},
                        this.thinking, this.thoughts);
    this.calls = new CallsView(actions.results);
    this.body.before(this.reasoning);
    this.body.after(this.calls.root);
    this.markdown = new MarkdownView(this.body);
    this.goOn = button('down', 'Continue this answer', 'Continue',
                       actions.goOn);
    this.time = button('clock', 'Time of this answer', 'Time',
                       actions.time);
    this.bar.append(
        copyButton(() => message.content, 'Copy this answer'),
        button('again', 'Regenerate this answer', 'Regenerate',
               actions.regenerate),
        this.goOn, this.time);
    this.update(false);
  }

  // "‹ 2 of 3 ›", where a message has other versions.
  showVersions([at, count]) {
    this.versions?.remove();
    this.versions = null;
    if (count < 2) return;
    const step = (by, name, label, off) => el('button', {
      type: 'button', class: `quiet ${name}`, 'aria-label': label, title: label,
      disabled: off, click: () => this.actions.turn(by)}, icon(name));
    this.versions = el('span', {class: 'versions', role: 'group',
                                'aria-label': 'Versions'},
        step(-1, 'left', 'Earlier version', at === 1),
        el('span', {}, `${at} of ${count}`),
        step(1, 'right', 'Later version', at === count));
    this.meta.after(this.versions);
  }

  // Shows the answer as it is by now. state: {streaming, last: nothing follows
  // it, waits: why nothing comes, traced: its times can be had}.
  update(streaming, {last = false, waits = '', traced = false} = {}) {
    const {content, reasoning = '', calls = [], meta = {}} = this.message;
    const fenced = meta.format && content !== '' ?
        `~~~~~~json\n${streaming ? content : readable(content)}\n~~~~~~` :
        content;
    this.root.classList.toggle('streaming', streaming);
    this.root.setAttribute('aria-busy', String(streaming));
    this.root.classList.toggle('empty', content === '' && !reasoning &&
                               calls.length === 0);
    this.markdown.show(fenced, streaming);
    this.reasoning.hidden = reasoning === '';
    this.thoughts.textContent = reasoning;
    this.thinking.textContent = streaming && content === '' &&
        calls.length === 0 ? 'Thinking …' : meta.thought === undefined ?
        'Reasoning' : `Thought for ${seconds(meta.thought)}`;
    this.calls.show(calls);
    this.calls.ask(last && !streaming ? calls : []);
    this.meta.textContent = waits || metaText(meta);
    this.goOn.hidden = !last || content === '' || Boolean(meta.format) ||
        calls.length > 0 || !(this.message.error || meta.finish === 'length' ||
                              meta.finish === 'stopped');
    this.time.hidden = !traced;
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
      this.bar.querySelector('[aria-label^="Edit"]').focus();
    };
    const done = () => {
      const text = area.value.trim();
      if (text || this.message.files?.length) this.actions.edit(text);
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
