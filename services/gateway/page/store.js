// Small things that outlive a reload: settings and choices in localStorage, the
// API key in sessionStorage (gone with the tab). Without storage (a private
// window) everything works until the page is closed.

const kSettings = 'sluice.settings';
const kKey = 'sluice.key';

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

// system: of new chats. mode: 'chat' or 'completion'. parameters: {name:
// number}; those that are absent are not sent. stop: a text a line. thinking: ''
// or a word of reasoning_effort. format: 'text', 'json' or 'schema'; schema and
// tools are JSON as it was typed.
export const settings = {
  system: '', mode: 'chat', parameters: {}, stop: '', thinking: '',
  format: 'text', schema: '', tools: '', ...load(kSettings, {}),
};

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
