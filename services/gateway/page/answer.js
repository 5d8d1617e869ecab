// An answer as it comes: chunks of the stream into a message, and its times.

import {ApiError, streamChunks} from './api.js';
import {newId} from './tree.js';

const kTab = 'sluice.tab';

// A name of this tab that a reload keeps.
function tabId() {
  try {
    let id = sessionStorage.getItem(kTab);
    if (!id) sessionStorage.setItem(kTab, id = newId());
    return id;
  } catch {
    return newId();
  }
}

const kThisTab = tabId();
const kAbandonedMs = 15000;  // since a tab last wrote the answer it was getting

// Whether the message is an answer that no page is getting any more.
export function isAbandoned({pending, changed}) {
  return pending !== undefined && (pending.tab === kThisTab ||
                                   Date.now() - changed > kAbandonedMs);
}

export class Answer {
  // grown(): called for each chunk.
  constructor(conversation, message, grown) {
    this.conversation = conversation;
    this.message = message;
    this.grown = grown;
    this.abort = new AbortController();
    this.heard = performance.now();  // when the latest chunk came
  }

  stop() {
    this.abort.abort();
  }

  // Asks for the answer, or for the rest of an abandoned one; ends with the
  // message's end, whatever that is.
  async run(path, body) {
    const {message} = this;
    const resumed = message.pending !== undefined;
    message.meta ??= {};
    const {request = newId(), event = '', before = message.meta.tokens ?? 0} =
        message.pending ?? {};
    this.request = request;
    delete message.meta.finish;
    delete message.error;
    message.pending = {request, event, before, tab: kThisTab};
    try {
      await this.receive(streamChunks({
        path, body, requestId: request, event, resumed,
        signal: this.abort.signal,
      }));
    } catch (error) {
      if (error.name === 'AbortError') message.meta.finish = 'stopped';
      else this.fail(error);
    }
    delete message.pending;
    message.changed = Date.now();
  }

  fail(error) {
    this.message.error = {
      status: error instanceof ApiError ? error.status : -1,
      message: error.message, retryAfter: error.retryAfter ?? null,
      at: Date.now(),
    };
  }

  async receive(stream) {
    const {message} = this;
    const {meta} = message;
    const had = meta.tokens ?? 0;
    const begin = performance.now();
    let first = 0;
    let count = 0;
    for await (const {chunk, event} of stream) {
      const now = performance.now();
      if (this.take(chunk)) {
        if (first === 0) {
          first = now;
          if (had === 0) meta.ttft = first - begin;
        } else {
          meta.pause = Math.max(meta.pause ?? 0, now - this.heard);
        }
        meta.tokens = had + ++count;
        this.heard = now;
        if (message.reasoning && message.content === '' &&
            !message.calls?.length) {
          meta.thought = now - begin;
        }
      }
      // Until the usage comes at the end, a chunk counts as a token.
      if (chunk.usage) {
        meta.tokens = message.pending.before + chunk.usage.completion_tokens;
        meta.prompt = chunk.usage.prompt_tokens;
        meta.cached = chunk.usage.prompt_tokens_details?.cached_tokens;
      }
      if (meta.tokens > had + 1 && this.heard > first) {
        meta.rate = (meta.tokens - had - 1) * 1000 / (this.heard - first);
      }
      message.pending.event = event;
      message.changed = Date.now();
      this.grown();
    }
  }

  // Adds what a chunk has to the message; returns whether it had something.
  take(chunk) {
    const {message} = this;
    const choice = chunk.choices?.[0];
    const text = choice?.delta?.content ?? choice?.text ?? '';
    const thought = choice?.delta?.reasoning_content ?? '';
    const pieces = choice?.delta?.tool_calls ?? [];
    if (choice?.finish_reason) message.meta.finish = choice.finish_reason;
    message.content += text;
    if (thought !== '') message.reasoning = (message.reasoning ?? '') + thought;
    for (const {index, id, function: part} of pieces) {
      const call = (message.calls ??= [])[index] ??=
          {id, name: part.name, arguments: ''};
      call.arguments += part.arguments ?? '';
    }
    return text !== '' || thought !== '' || pieces.length > 0;
  }
}
