// The conversation in the middle of the page: sending, streaming, stopping,
// asking again, other versions.

import {Answer, isAbandoned} from './answer.js';
import {announce, byId, el} from './dom.js';
import {FileTray} from './files.js';
import {MessageView} from './messages.js';
import {SettingsError, requestOf} from './request.js';
import {settings} from './store.js';
import {append, branchOf, newConversation, turnTo, versionsOf} from './tree.js';

const kSuggestions = [
  'Name the capital of France.',
  'Write a haiku about a river.',
  'Show me a loop in Python that prints the numbers from 1 to 5.',
  'Make a small table of three planets and their moons.',
];
const kKeepMs = 1000;  // how often a growing answer is kept
const kSilenceMs = 1500;  // after which an answer says what it waits for

export class Chat {
  // hooks: {changed(conversation), running(): an answer begins or ends,
  // answered(request, message), time(request): asks for its times, key(),
  // settings()}
  constructor(hooks) {
    this.hooks = hooks;
    this.thread = byId('thread');
    this.list = byId('messages');
    this.prompt = byId('prompt');
    this.views = [];
    this.answers = new Map();  // under way, by the conversation's id
    this.requests = new Map();  // ids of requests, by the answer's id
    this.following = true;  // the newest text is kept in sight
    this.maxContext = 0;  // tokens; 0: unknown
    this.trouble = '';  // of the cluster
    this.tray = new FileTray(() => this.resize());
    this.listen();
    this.show(newConversation(settings.system));
  }

  // The answer that the conversation on the screen is getting.
  get running() {
    return this.answers.get(this.conversation.id) ?? null;
  }

  listen() {
    byId('composer').addEventListener('submit', (event) => {
      event.preventDefault();
      if (this.running) this.stop();
      else this.sendPrompt();
    });
    this.prompt.addEventListener('input', () => this.resize());
    this.prompt.addEventListener('keydown', (event) => {
      if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) {
        event.preventDefault();
        if (!this.running) this.sendPrompt();
      } else if (event.key === 'ArrowUp' && this.prompt.value === '') {
        const last = this.views.findLast(
            (view) => view.message.role === 'user');
        if (last && !this.running) {
          event.preventDefault();
          last.edit();
        }
      }
    });
    this.thread.addEventListener('scroll', () => {
      const {scrollHeight, scrollTop, clientHeight} = this.thread;
      this.following = scrollHeight - scrollTop - clientHeight < 60;
      byId('jump').hidden = this.following;
    }, {passive: true});
    byId('jump').addEventListener('click', () => this.follow(true));
  }

  resize() {
    this.prompt.style.height = 'auto';
    this.prompt.style.height =
        `${Math.min(this.prompt.scrollHeight, innerHeight * 0.4)}px`;
    byId('send').disabled = !this.running && this.prompt.value.trim() === '' &&
        this.tray.files.length === 0;
  }

  follow(always = false) {
    if (always || this.following) {
      this.thread.scrollTop = this.thread.scrollHeight;
    }
  }

  // Whether a text is being written inside of a message.
  isEdited() {
    return this.list.querySelector('.editor') !== null;
  }

  // Shows a conversation from its end, or where it `stays`; the answer of
  // another one goes on meanwhile.
  show(conversation, stays = false) {
    this.conversation = this.answers.get(conversation.id)?.conversation ??
        conversation;
    this.redraw();
    this.follow(!stays);
    const last = this.views.at(-1)?.message;
    if (last && !this.running && isAbandoned(last)) this.resume(last);
  }

  redraw() {
    this.views = [];
    this.list.replaceChildren();
    for (const message of branchOf(this.conversation)) this.addView(message);
    for (const view of this.views) this.refresh(view);
    this.showWelcome();
    this.showRunning();
  }

  showWelcome() {
    byId('welcome').hidden = this.views.length > 0;
    byId('suggestions').replaceChildren(...kSuggestions.map((text) =>
      el('button', {type: 'button', class: 'suggestion',
                    click: () => {
                      this.focus();
                      this.send({role: 'user', content: text});
                    }}, text)));
  }

  addView(message) {
    const {conversation} = this;
    const versions = versionsOf(conversation, message);
    const view = new MessageView(message, {
      edit: (content) => this.sendAgain(message, content),
      regenerate: () => this.answerAgain(message),
      retry: () => this.answerAgain(message),
      goOn: () => this.goOn(message),
      turn: (step) => this.turn(message, step),
      results: (texts) => this.sendResults(message, texts),
      time: () => this.hooks.time(this.requests.get(message.id)),
      key: this.hooks.key,
      settings: this.hooks.settings,
    }, [versions.indexOf(message) + 1, versions.length]);
    this.views.push(view);
    this.list.append(view.root);
    return view;
  }

  // Shows a view's message as it is by now, if it is an answer.
  refresh(view, waits = '') {
    const {message} = view;
    if (message.role !== 'assistant') return;
    const streaming = this.running?.message === message;
    view.update(streaming, {
      waits, last: view === this.views.at(-1),
      traced: !streaming && !message.error && this.requests.has(message.id),
    });
  }

  viewOf(message) {
    return this.views.find((view) => view.message === message);
  }

  // Adds a message to the branch and to the screen.
  add(message) {
    const before = this.views.at(-1);
    const view = this.addView(append(this.conversation, message));
    if (before) this.refresh(before);
    this.showWelcome();
    return view;
  }

  sendPrompt() {
    const content = this.prompt.value.trim();
    if (content === '' && this.tray.files.length === 0) return;
    this.prompt.value = '';
    const files = this.tray.take();
    this.send({role: 'user', content, ...(files.length > 0 && {files})});
  }

  send(message) {
    const {conversation} = this;
    if (conversation.messages.length === 0) {
      conversation.title = (message.content || message.files[0].name)
          .split('\n')[0].slice(0, 60);
    }
    this.add(message);
    this.answer();
  }

  // Not where that would bring up a keyboard on the screen.
  focus() {
    if (matchMedia('(hover: hover)').matches) this.prompt.focus();
  }

  // Goes back to before `message`: what is added next is another version.
  leave(message) {
    this.stop();
    this.conversation.leaf = message.parent;
    this.redraw();
    this.focus();
  }

  sendAgain(message, content) {
    this.leave(message);
    const {files} = message;
    this.send({role: 'user', content, ...(files && {files})});
  }

  answerAgain(message) {
    this.leave(message);
    this.answer();
  }

  // Shows the version of `message` that is `step` behind it.
  turn(message, step) {
    const versions = versionsOf(this.conversation, message);
    const other = versions[versions.indexOf(message) + step];
    if (!other) return;
    turnTo(this.conversation, other);
    this.redraw();
    this.hooks.changed(this.conversation);
    const buttons = [...this.viewOf(other).versions.querySelectorAll('button')];
    const pressed = buttons[step < 0 ? 0 : 1];
    (pressed.disabled ? buttons.find((one) => !one.disabled) : pressed).focus();
    announce(`Version ${versions.indexOf(other) + 1} of ${versions.length}`);
  }

  sendResults({calls}, texts) {
    texts.forEach((content, i) => this.add(
        {role: 'tool', content, call: calls[i].id, name: calls[i].name}));
    this.focus();
    this.answer();
  }

  stop() {
    this.running?.stop();
  }

  // Stops a conversation's answer before the conversation is deleted.
  drop(id) {
    const answer = this.answers.get(id);
    if (!answer) return;
    answer.dropped = true;
    answer.stop();
    this.answers.delete(id);
  }

  // Asks for an answer to the branch.
  answer() {
    const branch = branchOf(this.conversation);
    const {message} = this.add({role: 'assistant', content: '', meta: {}});
    if (settings.format !== 'text') message.meta.format = settings.format;
    this.run(message, branch);
  }

  goOn(message) {
    this.focus();
    this.run(message, branchOf(this.conversation), true);
  }

  resume(message) {
    // Without an event's id its place in the stream is unknown.
    if (message.pending.event || message.content === '') this.run(message, []);
    else {
      delete message.pending;
      message.meta = {...message.meta, finish: 'stopped'};
      this.refresh(this.viewOf(message));
    }
  }

  // Gets an answer's text, or its rest, and shows it as it comes.
  async run(message, branch, goesOn = false) {
    const {conversation} = this;
    let drawing = false;
    let timer = 0;
    const answer = new Answer(conversation, message, () => {
      timer ||= setTimeout(() => {
        timer = 0;
        this.hooks.changed(conversation);
      }, kKeepMs);
      if (drawing) return;
      drawing = true;
      requestAnimationFrame(() => {
        drawing = false;
        const view = this.viewOf(message);
        if (!view || this.running !== answer) return;
        this.refresh(view);
        this.follow();
      });
    });
    this.answers.set(conversation.id, answer);
    conversation.updated = Date.now();
    this.showRunning();
    this.refresh(this.viewOf(message));
    this.follow(true);
    try {
      const [path, body] = requestOf(conversation, branch, goesOn);
      const running = answer.run(path, body);
      this.hooks.changed(conversation);
      await running;
    } catch (error) {
      answer.fail(error);
      message.error.settings = error instanceof SettingsError;
    }
    clearTimeout(timer);
    this.ended(answer);
  }

  ended(answer) {
    const {conversation, message} = answer;
    if (answer.dropped) return;
    if (this.answers.get(conversation.id) === answer) {
      this.answers.delete(conversation.id);
    }
    this.requests.set(message.id, answer.request);
    conversation.updated = Date.now();
    this.hooks.changed(conversation);
    this.showRunning();
    const view = this.viewOf(message);
    if (!view) return;
    this.refresh(view);
    this.follow();
    if (message.meta.finish === 'stopped') announce('Stopped');
    else if (!message.error) {
      announce(`Answer: ${message.content.slice(0, 400)}`);
      this.hooks.answered(answer.request, message);
    }
  }

  showRunning() {
    const running = this.running !== null;
    document.body.classList.toggle('answering', running);
    const send = byId('send');
    send.setAttribute('aria-label', running ? 'Stop (Esc)' : 'Send (Enter)');
    send.title = send.getAttribute('aria-label');
    this.resize();
    this.showContext();
    this.hooks.running();
  }

  // "1,246 of 8,192 tokens": what the latest answer and its prompt take.
  showContext() {
    const meta = this.views.findLast(
        ({message}) => message.meta?.prompt !== undefined)?.message.meta;
    const count = (value) => value.toLocaleString('en');
    byId('context').textContent = !meta ? '' :
        `${count(meta.prompt + meta.tokens)} ` +
        (this.maxContext ? `of ${count(this.maxContext)} ` : '') + 'tokens';
  }

  setMaxContext(tokens) {
    if (this.maxContext === tokens) return;
    this.maxContext = tokens;
    this.showContext();
  }

  // An answer that stands still tells the cluster's trouble.
  tellSilence() {
    const {running} = this;
    const view = running && this.viewOf(running.message);
    if (view && this.trouble &&
        performance.now() - running.heard > kSilenceMs) {
      this.refresh(view, `waiting: ${this.trouble}`);
    }
  }
}
