// What outlives a reload: conversations and settings in localStorage, the API
// key in sessionStorage (gone with the tab). Without storage (a private
// window) everything works until the page is closed.

const kConversations = 'sluice.conversations';
const kSettings = 'sluice.settings';
const kKey = 'sluice.key';
const kMaxConversations = 50;

function load(key, otherwise) {
  try {
    return JSON.parse(localStorage.getItem(key)) ?? otherwise;
  } catch {
    return otherwise;
  }
}

function save(key, value) {
  try {
    localStorage.setItem(key, JSON.stringify(value));
    return true;
  } catch {
    return false;
  }
}

// Conversations: {id, title, updated, messages: [{role, content, meta?,
// error?}]}, the latest first.
export const conversations = load(kConversations, []);
if (!Array.isArray(conversations)) conversations.length = 0;

// Drops the oldest until the rest fits into the browser's storage.
export function saveConversations() {
  conversations.sort((a, b) => b.updated - a.updated);
  conversations.length = Math.min(conversations.length, kMaxConversations);
  const kept = conversations.filter((one) => one.messages.length > 0);
  while (!save(kConversations, kept) && kept.length > 1) kept.pop();
}

// Takes over what another tab has kept; `current` stays as it is here.
// `changed` is called afterwards.
export function followOtherTabs(current, changed) {
  addEventListener('storage', (event) => {
    if (event.key !== kConversations) return;
    const theirs = load(kConversations, []);
    if (!Array.isArray(theirs)) return;
    const kept = theirs.map((one) =>
      one.id === current().id ? current() : one);
    if (conversations.includes(current()) && !kept.includes(current())) {
      kept.unshift(current());
    }
    conversations.splice(0, conversations.length, ...kept);
    changed();
  });
}

export function newConversation() {
  const id = Date.now().toString(36) + Math.random().toString(36).slice(2, 8);
  return {id, title: 'New chat', updated: Date.now(), messages: []};
}

// {system, mode: 'chat' or 'completion', parameters: {name: number}}.
// Parameters that are absent are not sent.
export const settings = {system: '', mode: 'chat', parameters: {},
                         ...load(kSettings, {})};

export function saveSettings() {
  save(kSettings, settings);
}

let key = '';
try {
  key = sessionStorage.getItem(kKey) ?? '';
} catch {
  // No storage: the key lives as long as the page.
}

export function apiKey() {
  return key;
}

export function setApiKey(value) {
  key = value;
  try {
    sessionStorage.setItem(kKey, value);
  } catch {
    // As above.
  }
}

// Small choices of the page: theme, open panels.
export function choice(name) {
  return load(`sluice.${name}`, null);
}

export function setChoice(name, value) {
  save(`sluice.${name}`, value);
}
