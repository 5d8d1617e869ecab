// The gateway's API as this page uses it. Addresses are relative, so that the
// page also works behind a proxy that adds a prefix.

import {apiKey} from './store.js';

// The status of an answer that ended in an error after it had begun well.
export const kCutShort = -2;

const kMaxTries = 5;  // in a row, to resume a stream
const kRetryMs = 700;  // times the number of the try

// A request that got no answer, or an answer that is an error. `status` 0: no
// connection. `retryAfter`: seconds, or null.
export class ApiError extends Error {
  constructor(status, message, retryAfter = null) {
    super(message);
    this.status = status;
    this.retryAfter = retryAfter;
  }
}

function headers() {
  const key = apiKey();
  return key ? {Authorization: `Bearer ${key}`} : {};
}

async function errorOf(response) {
  let message = `${response.status} ${response.statusText}`;
  try {
    const body = await response.json();
    message = body.error?.message || body.why || message;
  } catch {
    // Not JSON: the status line says it.
  }
  const after = parseFloat(response.headers.get('Retry-After'));
  return new ApiError(response.status, message,
                      Number.isFinite(after) ? after : null);
}

async function send(path, options) {
  let response;
  try {
    response = await fetch(path, {
      ...options, headers: {...options.headers, ...headers()},
      credentials: 'same-origin', cache: 'no-store',
    });
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new ApiError(0, 'The gateway does not answer');
  }
  if (!response.ok) throw await errorOf(response);
  return response;
}

// The JSON at `path`, within `timeoutMs`.
export async function getJson(path, timeoutMs = 5000) {
  try {
    const response =
        await send(path, {signal: AbortSignal.timeout(timeoutMs)});
    return await response.json();
  } catch (error) {
    if (error instanceof ApiError) throw error;
    throw new ApiError(0, 'The gateway does not answer');
  }
}

// The server-sent events of `body`, a stream of bytes, each as {id, data}. An
// event that breaks off is none.
async function* eventsOf(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  let event = {id: '', data: ''};
  try {
    for (;;) {
      const {value, done} = await reader.read();
      if (done) return;
      const lines = (rest + value).split('\n');
      rest = lines.pop();
      for (const line of lines) {
        if (line.startsWith('data:')) event.data += line.slice(5).trim();
        if (line.startsWith('id:')) event.id = line.slice(3).trim();
        if (line.trim() !== '' || event.data === '') continue;
        yield event;
        event = {id: '', data: ''};
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

// Resolves after `ms`, or rejects once `signal` says so.
function pause(ms, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener('abort', () => {
      clearTimeout(timer);
      reject(signal.reason);
    }, {once: true});
  });
}

// The answer to a POST of `body`, or the rest of a stream that broke off.
async function begin({path, body, requestId, signal}) {
  return send(path, {
    method: 'POST', signal,
    headers: {'Content-Type': 'application/json', 'X-Request-Id': requestId,
              'X-Sluice-Trace': '1'},
    body: JSON.stringify({
      ...body, stream: true, stream_options: {include_usage: true},
    }),
  });
}

async function resume({requestId, signal}, event) {
  try {
    return await send(`v1/streams/${requestId}`,
                      {signal, headers: event && {'Last-Event-ID': event}});
  } catch (error) {
    if (error instanceof ApiError && error.status > 0 && error.status < 500) {
      throw new ApiError(kCutShort, error.message);
    }
    throw error;
  }
}

// Posts a request with "stream" and gives {chunk, event} for each chunk,
// `event` being the id behind which the stream can be resumed, or ''. A stream
// that breaks off is resumed, and so is one that another page began: `resumed`,
// from behind `event` or, if that is '', from its beginning. request: {path,
// body, requestId, signal, resumed, event}. Throws ApiError, also for an error
// within the stream, and AbortError once `signal` says so.
export async function* streamChunks(request) {
  let event = request.event ?? '';
  let response = request.resumed ? null : await begin(request);
  for (let tries = 1;; ++tries) {
    let why = 'The stream has no end';
    try {
      response ??= await resume(request, event);
      if (response.status === 204) return;
      for await (const {id, data} of eventsOf(response.body)) {
        if (data === '[DONE]') return;
        const chunk = JSON.parse(data);
        if (chunk.error) throw new ApiError(kCutShort, chunk.error.message);
        event = id || event;
        tries = 0;
        yield {chunk, event};
      }
    } catch (error) {
      if (error.name === 'AbortError' || error instanceof SyntaxError ||
          error.status === kCutShort) {
        throw error;
      }
      why = error instanceof ApiError ? error.message : 'The connection broke';
    }
    if (event === '' || tries > kMaxTries) throw new ApiError(kCutShort, why);
    response = null;
    await pause(kRetryMs * Math.max(tries, 1), request.signal);
  }
}
