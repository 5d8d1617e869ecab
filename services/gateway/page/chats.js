// The conversations that the browser keeps, in IndexedDB: a store of heads (id,
// title, updated) for the list, one of whole conversations. What could not be
// written stays in memory, is told of and tried again.

import {fromList, merge} from './tree.js';

const kDatabase = 'sluice';
const kOldKey = 'sluice.conversations';  // localStorage, before IndexedDB

// Heads of all conversations, the latest first.
export const heads = [];

const unwritten = new Map();  // conversations by id
let writing = null;  // a promise, while conversations are written
let opened = null;  // a promise of the database
let hooks = {};
const channel = new BroadcastChannel('sluice.chats');

function settled(request) {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

function database() {
  opened ??= new Promise((resolve, reject) => {
    const request = indexedDB.open(kDatabase, 1);
    request.onupgradeneeded = () => {
      request.result.createObjectStore('heads', {keyPath: 'id'});
      request.result.createObjectStore('chats', {keyPath: 'id'});
    };
    request.onerror = () => reject(request.error);
    request.onsuccess = () => {
      const forget = () => { opened = null; };
      request.result.onclose = forget;
      request.result.onversionchange = () => {
        request.result.close();
        forget();
      };
      resolve(request.result);
    };
  });
  opened.catch(() => { opened = null; });
  return opened;
}

// What `work(heads, chats)` gives, once its changes are on disk.
async function transact(mode, work) {
  const transaction = (await database()).transaction(['heads', 'chats'], mode);
  const ended = new Promise((resolve, reject) => {
    transaction.oncomplete = resolve;
    transaction.onabort = () => reject(transaction.error ?? new DOMException(
        'The transaction was aborted', 'AbortError'));
  });
  ended.catch(() => {});
  const result = await work(transaction.objectStore('heads'),
                            transaction.objectStore('chats'));
  await ended;
  return result;
}

function headOf({id, title, updated}) {
  return {id, title, updated};
}

function setHead(head) {
  const at = heads.findIndex((one) => one.id === head.id);
  if (at >= 0) heads.splice(at, 1);
  heads.push(head);
  heads.sort((a, b) => b.updated - a.updated);
}

async function readHeads() {
  const found = await transact('readonly', (all) => settled(all.getAll()));
  for (const one of unwritten.values()) {
    if (!found.some(({id}) => id === one.id)) found.push(headOf(one));
  }
  found.sort((a, b) => b.updated - a.updated);
  heads.splice(0, heads.length, ...found);
}

function reason(error) {
  return error.name === 'QuotaExceededError' ? 'its storage is full' :
      error.message || error.name;
}

// Writes a conversation, with what other tabs have added to it.
async function write(conversation) {
  await transact('readwrite', async (allHeads, chats) => {
    const stored = await settled(chats.get(conversation.id));
    if (stored && merge(conversation, stored)) hooks.changed(conversation.id);
    allHeads.put(headOf(conversation));
    chats.put(conversation);
  });
  channel.postMessage(conversation.id);
}

async function writeAll() {
  const failed = new Set();
  let trouble = null;
  for (;;) {
    const next = [...unwritten.values()].find(({id}) => !failed.has(id));
    if (!next) break;
    const {id} = next;
    unwritten.delete(id);
    try {
      await write(next);
    } catch (error) {
      if (!unwritten.has(id)) unwritten.set(id, next);
      failed.add(id);
      trouble = error;
    }
  }
  hooks.trouble(trouble && reason(trouble));
}

let again = false;  // what came while conversations were written

function writeNow() {
  again = writing !== null;
  writing ??= writeAll().finally(() => {
    writing = null;
    if (again) writeNow();
  });
  return writing;
}

// Keeps a conversation as it is by now.
export function keep(conversation) {
  setHead(headOf(conversation));
  unwritten.set(conversation.id, conversation);
  return writeNow();
}

export function hasUnwritten() {
  return unwritten.size > 0;
}

// The conversation, or undefined if it is gone.
export async function load(id) {
  return unwritten.get(id) ?? await transact(
      'readonly', (_, chats) => settled(chats.get(id)));
}

export async function loadAll() {
  const all = await transact('readonly', (_, chats) =>
      settled(chats.getAll())).catch(() => []);
  return [...all.filter(({id}) => !unwritten.has(id)), ...unwritten.values()];
}

export async function forget(id) {
  heads.splice(heads.findIndex((one) => one.id === id), 1);
  unwritten.delete(id);
  await writing;
  await transact('readwrite', (allHeads, chats) => {
    allHeads.delete(id);
    chats.delete(id);
  }).catch((error) => hooks.trouble(reason(error)));
  channel.postMessage(id);
  if (unwritten.size > 0) writeNow();  // there may be room now
}

// Conversations of the page's former store move to this one.
async function takeOld() {
  const old = JSON.parse(localStorage.getItem(kOldKey) ?? '[]');
  for (const {messages, ...about} of Array.isArray(old) ? old : []) {
    await keep(fromList(about, messages));
  }
  if (unwritten.size === 0) localStorage.removeItem(kOldKey);
}

// Reads the heads. `given`: {trouble(why or null): what could not be kept;
// changed(id): another tab changed that conversation; heads are read again}.
export async function openChats(given) {
  hooks = given;
  channel.onmessage = async ({data}) => {
    await readHeads().catch(() => {});
    hooks.changed(data);
  };
  try {
    await readHeads();
    await takeOld();
  } catch (error) {
    hooks.trouble(reason(error));
  }
}
