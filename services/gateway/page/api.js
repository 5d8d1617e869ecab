// The gateway's API as this page uses it. Addresses are relative, so that the
// page also works behind a proxy that adds a prefix.

import {apiKey} from './store.js';

// The status of an answer that ended in an error after it had begun well.
export const kCutShort = -2;

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

// The data of each server-sent event of `body`, a stream of bytes.
async function* eventsOf(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  try {
    for (;;) {
      const {value, done} = await reader.read();
      if (done) return;
      const lines = (rest + value).split('\n');
      rest = lines.pop();
      for (const line of lines) {
        if (line.startsWith('data:')) yield line.slice(5).trim();
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

// Posts `request` with "stream" and gives each chunk. Throws ApiError, also
// for an error within the stream and for a stream that breaks off, and
// AbortError once `signal` says so.
export async function* streamChunks(path, request, signal) {
  const response = await send(path, {
    method: 'POST', signal,
    headers: {'Content-Type': 'application/json'},
    body: JSON.stringify({
      ...request, stream: true, stream_options: {include_usage: true},
    }),
  });
  try {
    for await (const data of eventsOf(response.body)) {
      if (data === '[DONE]') return;
      const chunk = JSON.parse(data);
      if (chunk.error) {
        throw new ApiError(kCutShort, chunk.error.message);
      }
      yield chunk;
    }
  } catch (error) {
    if (error instanceof ApiError || error.name === 'AbortError') throw error;
    throw new ApiError(kCutShort, 'The connection broke');
  }
  throw new ApiError(kCutShort, 'The stream has no end');
}
