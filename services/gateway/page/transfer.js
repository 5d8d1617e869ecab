// Conversations as a file. Read are the page's own files and lists of messages
// as the API has them, {"messages": [{"role", "content"}]} or the list alone.

import {fromList} from './tree.js';

const kFormat = 'sluice-chats';
const kId = /^[\w-]{1,64}$/;
const kRoles = ['user', 'assistant', 'tool'];
const kNumbers = ['tokens', 'rate', 'ttft', 'prompt', 'cached', 'thought',
                  'pause'];

export function exported(conversations) {
  return JSON.stringify({format: kFormat, version: 1, chats: conversations},
                        null, 1);
}

function check(holds, where, text) {
  if (!holds) throw new Error(`${where} ${text}`);
}

function isObject(value) {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

// The strings among the members `names` of `from`.
function strings(from, names) {
  return Object.fromEntries(names.filter((name) =>
    typeof from[name] === 'string').map((name) => [name, from[name]]));
}

function list(value, where, take) {
  if (value === undefined || value === null) return undefined;
  check(Array.isArray(value), where, 'is no array');
  return value.map((one, i) => {
    check(isObject(one), `${where}[${i}]`, 'is no object');
    return take(one, `${where}[${i}]`);
  });
}

function contentOf({content}, where) {
  if (content === null || content === undefined) return '';
  if (!Array.isArray(content)) {
    check(typeof content === 'string', `${where}.content`, 'is no text');
    return content;
  }
  return content.map((part, i) => {
    check(typeof part?.text === 'string', `${where}.content[${i}]`,
          'is no text');
    return part.text;
  }).join('\n');
}

function metaOf(meta) {
  if (!isObject(meta)) return undefined;
  return {...strings(meta, ['finish', 'format']), ...Object.fromEntries(
      kNumbers.filter((name) => Number.isFinite(meta[name]))
          .map((name) => [name, meta[name]]))};
}

// What of a message is known to this page; its own form and the API's.
function messageOf(from, where) {
  check(isObject(from), where, 'is no object');
  check(kRoles.includes(from.role), `${where}.role`,
        `must be ${kRoles.join(', ')} or, first, system`);
  const message = {
    role: from.role, content: contentOf(from, where),
    reasoning: from.reasoning ?? from.reasoning_content,
    call: from.call ?? from.tool_call_id, meta: metaOf(from.meta),
    files: list(from.files, `${where}.files`, (file, at) => {
      const {name, text} = file;
      check(typeof name === 'string' && typeof text === 'string', at,
            'has no name and text');
      return {name, text};
    }),
    calls: list(from.calls ?? from.tool_calls, `${where}.calls`, (call, at) => {
      const {name, arguments: text} = call.function ?? call;
      check(typeof name === 'string' && typeof text === 'string', at,
            'has no name and arguments');
      return {id: String(call.id ?? ''), name, arguments: text};
    }),
  };
  for (const [name, value] of Object.entries(message)) {
    if (['reasoning', 'call'].includes(name) && typeof value !== 'string' ||
        value === undefined) {
      delete message[name];
    }
  }
  return message;
}

// The conversation of a page's file, whose ids stay: a second import of the
// file changes nothing.
function treeOf(from, messages, conversation, where) {
  const ids = new Set();
  conversation.messages = messages.map((message, i) => {
    const {id, parent = null, changed} = from.messages[i];
    check(parent === null || ids.has(parent), `${where}.messages[${i}].parent`,
          'is not the id of a message before it');
    check(kId.test(id) && !ids.has(id), `${where}.messages[${i}].id`,
          'is no id of its own');
    ids.add(id);
    return {...message, id, parent, changed: Number(changed) || 0};
  });
  conversation.leaf = ids.has(from.leaf) ? from.leaf : messages.length > 0 ?
      conversation.messages.at(-1).id : null;
  if (kId.test(from.id)) conversation.id = from.id;
  return conversation;
}

function conversationOf(from, where) {
  if (Array.isArray(from)) from = {messages: from};
  check(isObject(from) && Array.isArray(from.messages), where,
        'has no list of messages');
  let all = from.messages;
  let {system} = strings(from, ['system']);
  if (all[0]?.role === 'system' || all[0]?.role === 'developer') {
    system = contentOf(all[0], `${where}.messages[0]`);
    all = all.slice(1);
  }
  const left = from.messages.length - all.length;
  const messages = all.map((one, i) =>
    messageOf(one, `${where}.messages[${i + left}]`));
  check(messages.length > 0, where, 'has no messages');
  const first = messages[0].content.trim().split('\n')[0].slice(0, 60);
  const about = {
    title: strings(from, ['title']).title?.slice(0, 200) ||
        first || undefined, system,
    updated: Number.isFinite(from.updated) ? from.updated : undefined,
  };
  if (!all.every((one) => 'id' in one && 'parent' in one)) {
    return fromList(about, messages);
  }
  return treeOf({...from, messages: all}, messages, fromList(about, []), where);
}

// The conversations of a file's text. Throws an Error that says where the file
// is none of these.
export function imported(text) {
  let file;
  try {
    file = JSON.parse(text);
  } catch (error) {
    throw new Error(`it is no JSON: ${error.message}`);
  }
  const several = file?.format === kFormat;
  if (several) {
    check(file.version === 1, 'version', `is ${file.version}, not 1`);
    check(Array.isArray(file.chats), 'chats', 'is no array');
  }
  const all = several ? file.chats : [file];
  return all.map((one, i) => conversationOf(
      one, several ? `chats[${i}]` : 'the chat'));
}
