// The conversation in the middle of the page: sending, streaming, stopping,
// asking again.

import {ApiError, streamChunks} from './api.js';
import {announce, byId, el} from './dom.js';
import {MessageView} from './messages.js';
import {newConversation, saveConversations, settings} from './store.js';

const kSuggestions = [
  'Name the capital of France.',
  'Write a haiku about a river.',
  'Show me a loop in Python that prints the numbers from 1 to 5.',
  'Make a small table of three planets and their moons.',
];

// How the messages so far are asked for.
function requestOf(conversation) {
  const messages = conversation.messages
      .filter((message) => message.content !== '')
      .map(({role, content}) => ({role, content}));
  const request = {...settings.parameters};
  if (settings.mode === 'completion') {
    const text = messages.map((message) => message.content).join('');
    return ['v1/completions', {max_tokens: 256, ...request, prompt: text}];
  }
  if (settings.system.trim()) {
    messages.unshift({role: 'system', content: settings.system});
  }
  return ['v1/chat/completions', {...request, messages}];
}

export class Chat {
  // hooks: {changed(conversation), key(), model()}
  constructor(hooks) {
    this.hooks = hooks;
    this.thread = byId('thread');
    this.list = byId('messages');
    this.prompt = byId('prompt');
    this.views = [];
    this.running = null;  // the AbortController of the answer under way
    this.following = true;  // the newest text is kept in sight
    this.listen();
    this.show(newConversation());
  }

  listen() {
    byId('composer').addEventListener('submit', (event) => {
      event.preventDefault();
      if (this.running) this.stop();
      else this.send(this.prompt.value);
    });
    this.prompt.addEventListener('input', () => this.resize());
    this.prompt.addEventListener('keydown', (event) => {
      if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) {
        event.preventDefault();
        if (!this.running) this.send(this.prompt.value);
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
    byId('send').disabled = !this.running && this.prompt.value.trim() === '';
  }

  follow(always = false) {
    if (always || this.following) {
      this.thread.scrollTop = this.thread.scrollHeight;
    }
  }

  show(conversation) {
    this.stop();
    this.conversation = conversation;
    this.views = [];
    this.list.replaceChildren();
    for (const message of conversation.messages) this.append(message);
    this.showWelcome();
    this.resize();
    this.follow(true);
  }

  showWelcome() {
    byId('welcome').hidden = this.conversation.messages.length > 0;
    byId('suggestions').replaceChildren(...kSuggestions.map((text) =>
      el('button', {type: 'button', class: 'suggestion',
                    click: () => {
                      this.focus();
                      this.send(text);
                    }}, text)));
  }

  append(message) {
    const conversation = this.conversation;
    const at = () => conversation.messages.indexOf(message);
    const view = new MessageView(message, {
      edit: (text) => this.sendAgain(at(), text),
      regenerate: () => this.answerAgain(at()),
      retry: () => this.answerAgain(at()),
      key: this.hooks.key,
    });
    this.views.push(view);
    this.list.append(view.root);
    return view;
  }

  // Forgets the messages from `index` on.
  truncate(index) {
    this.stop();
    this.conversation.messages.length = index;
    for (const view of this.views.splice(index)) view.root.remove();
  }

  send(text) {
    text = text.trim();
    if (text === '' || this.running) return;
    const {conversation} = this;
    if (conversation.messages.length === 0) {
      conversation.title = text.split('\n')[0].slice(0, 60);
    }
    this.prompt.value = '';
    const message = {role: 'user', content: text};
    conversation.messages.push(message);
    this.append(message);
    this.showWelcome();
    this.answer();
  }

  // Not where that would bring up a keyboard on the screen.
  focus() {
    if (matchMedia('(hover: hover)').matches) this.prompt.focus();
  }

  sendAgain(index, text) {
    this.truncate(index);
    this.focus();
    this.send(text);
  }

  answerAgain(index) {
    this.truncate(index);
    this.focus();
    this.answer();
  }

  stop() {
    if (this.running === null) return;
    this.running.abort();
    this.running = null;
    this.setRunning(false);
  }

  // Asks for an answer to what is there, and shows it as it comes.
  async answer() {
    const {conversation} = this;
    const message = {role: 'assistant', content: '', meta: {}};
    const [path, request] = requestOf(conversation);
    conversation.messages.push(message);
    conversation.updated = Date.now();
    const view = this.append(message);
    const running = this.running = new AbortController();
    this.setRunning(true);
    this.hooks.changed(conversation);
    view.update(true);
    this.follow(true);
    try {
      await this.receive(streamChunks(path, request, running.signal), message,
                         view);
      announce(`Answer: ${message.content.slice(0, 400)}`);
    } catch (error) {
      if (error.name === 'AbortError') {
        message.meta.finish = 'stopped';
        announce('Stopped');
      } else {
        message.error = {
          status: error instanceof ApiError ? error.status : -1,
          message: error.message, retryAfter: error.retryAfter ?? null,
          at: Date.now(),
        };
      }
    }
    if (this.running === running) {
      this.running = null;
      this.setRunning(false);
    }
    view.update(false);
    this.follow();
    conversation.updated = Date.now();
    this.hooks.changed(conversation);
  }

  // Takes chunks into `message`; draws at most once a frame.
  async receive(chunks, message, view) {
    const {meta} = message;
    const begin = performance.now();
    let first = 0;
    let last = 0;
    let drawing = false;
    const draw = () => {
      drawing = false;
      if (!view.root.classList.contains('streaming')) return;
      view.update(true);
      this.follow();
    };
    for await (const chunk of chunks) {
      const choice = chunk.choices?.[0];
      const text = choice?.delta?.content ?? choice?.text ?? '';
      if (choice?.finish_reason) meta.finish = choice.finish_reason;
      const thought = choice?.delta?.reasoning_content ?? '';
      const calls = choice?.delta?.tool_calls ?? [];
      if (text !== '' || thought !== '' || calls.length > 0) {
        last = performance.now();
        if (first === 0) {
          first = last;
          meta.ttft = first - begin;
        }
        message.content += text;
        if (thought !== '') {
          message.reasoning = (message.reasoning ?? '') + thought;
        }
        for (const piece of calls) {
          const call = (message.calls ??= [])[piece.index] ??=
              {name: piece.function.name, arguments: ''};
          call.arguments += piece.function.arguments;
        }
        meta.tokens = (meta.tokens ?? 0) + 1;
      }
      // Until the usage comes at the end, a chunk counts as a token.
      if (chunk.usage) meta.tokens = chunk.usage.completion_tokens;
      if (meta.tokens > 1 && last > first) {
        meta.rate = (meta.tokens - 1) * 1000 / (last - first);
      }
      if (!drawing) {
        drawing = true;
        requestAnimationFrame(draw);
      }
    }
  }

  setRunning(running) {
    document.body.classList.toggle('answering', running);
    const send = byId('send');
    send.setAttribute('aria-label', running ? 'Stop (Esc)' : 'Send (Enter)');
    send.title = send.getAttribute('aria-label');
    this.resize();
    if (!running) saveConversations();
  }
}
