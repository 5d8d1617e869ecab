// A conversation and the settings as a request of the API.

import {settings} from './store.js';

// What the settings have that cannot be sent.
export class SettingsError extends Error {}

// The JSON of the settings' field `name`, whose value is an array or an object.
export function parsedSetting(name, text, wantsArray) {
  let value;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw new SettingsError(`${name} in the settings: ${error.message}`);
  }
  const kind = Array.isArray(value) ? 'an array' :
      value === null ? 'null' : typeof value;
  if (kind !== (wantsArray ? 'an array' : 'object')) {
    throw new SettingsError(`${name} in the settings must be ` +
                            `${wantsArray ? 'an array' : 'an object'}, ` +
                            `got ${kind}`);
  }
  return value;
}

// A user's text with its files before it, each in a fence longer than the
// file's own ones.
export function textOf({content, files = []}) {
  return [...files.map(({name, text}) => {
    const longest = Math.max(2, ...[...text.matchAll(/`{3,}/g)].map(
        ([ticks]) => ticks.length));
    const fence = '`'.repeat(longest + 1);
    const ending = /\.([a-z0-9]+)$/i.exec(name)?.[1] ?? '';
    return `File: ${name}\n${fence}${ending}\n${text.replace(/\n$/, '')}\n` +
        fence;
  }), content].filter((text) => text !== '').join('\n\n');
}

function messageOf(message) {
  const {role, content, calls, reasoning, call} = message;
  if (role === 'user') return {role, content: textOf(message)};
  if (role === 'tool') return {role, content, tool_call_id: call};
  if (!calls?.length) return {role, content};
  // Between calls and their results a model wants its own reasoning, too.
  return {role, content, reasoning_content: reasoning || undefined,
          tool_calls: calls.map(({id, name, arguments: text}) => ({
            id, type: 'function', function: {name, arguments: text},
          }))};
}

function formatOf() {
  if (settings.format === 'json') return {type: 'json_object'};
  if (settings.format !== 'schema') return undefined;
  return {type: 'json_schema', json_schema: {
    name: 'answer', schema: parsedSetting('The schema', settings.schema, false),
  }};
}

// The path and body that ask for an answer to `branch`; `goesOn`: its last
// message is an answer's beginning. Throws SettingsError.
export function requestOf(conversation, branch, goesOn) {
  const messages = branch
      .filter(({role, content, calls, files}) => role === 'tool' ||
              content !== '' || calls?.length > 0 || files?.length > 0)
      .map(messageOf);
  const stop = settings.stop.split('\n').filter((line) => line !== '');
  const common = {...settings.parameters, stop: stop.length ? stop : undefined,
                  response_format: formatOf()};
  if (settings.mode === 'completion') {
    const prompt = messages.map((message) => message.content).join('');
    return ['v1/completions', {max_tokens: 256, ...common, prompt}];
  }
  const body = {...common, messages};
  if (conversation.system.trim()) {
    messages.unshift({role: 'system', content: conversation.system});
  }
  if (settings.thinking) body.reasoning_effort = settings.thinking;
  if (settings.tools.trim()) {
    body.tools = parsedSetting('The tools', settings.tools, true);
  }
  if (goesOn) body.continue_final_message = true;
  return ['v1/chat/completions', body];
}
