// Puts the page together: bar, panels, conversations, keys.

import {Chat} from './chat.js';
import * as chats from './chats.js';
import {ClusterWatch} from './cluster.js';
import {announce, byId} from './dom.js';
import {History} from './history.js';
import {askForKey, openSettings, setUpSettings} from './settings.js';
import {choice, setChoice, settings} from './store.js';
import {showTimes} from './times.js';
import {newConversation} from './tree.js';

const kTimesTokens = 300;  // of an answer whose times are shown unasked
const kWide = matchMedia('(min-width: 1160px)');
const kMedium = matchMedia('(min-width: 820px)');

// Panels ----------------------------------------------------------------------

// Left: conversations. Right: the cluster. Beside the chat where there is
// room, else above it, one at a time.
const panels = {
  history: {roomy: kWide, button: byId('open-history')},
  cluster: {roomy: kMedium, button: byId('pill')},
};

function setPanel(name, open, remember = true) {
  const {roomy, button} = panels[name];
  document.body.classList.toggle(`${name}-open`, open);
  button.setAttribute('aria-expanded', String(open));
  byId(name).inert = !open;
  if (remember && roomy.matches) setChoice(name, open);
  if (!roomy.matches && open) {
    for (const other of Object.keys(panels)) {
      if (other !== name && !panels[other].roomy.matches) {
        setPanel(other, false, false);
      }
    }
    byId(name).querySelector('button')?.focus();
  }
}

function isOpen(name) {
  return document.body.classList.contains(`${name}-open`);
}

function isAbove(name) {
  return isOpen(name) && !panels[name].roomy.matches;
}

function closeAbove() {
  for (const name of Object.keys(panels)) {
    if (!isAbove(name)) continue;
    setPanel(name, false, false);
    panels[name].button.focus();
  }
}

for (const [name, {roomy, button}] of Object.entries(panels)) {
  const fit = () => setPanel(name, roomy.matches && choice(name) !== false,
                             false);
  button.addEventListener('click', () => setPanel(name, !isOpen(name)));
  roomy.addEventListener('change', fit);
  fit();
}
byId('scrim').addEventListener('click', closeAbove);
for (const button of document.querySelectorAll('[data-close]')) {
  button.addEventListener('click', () => {
    setPanel(button.dataset.close, false);
    panels[button.dataset.close].button.focus();
  });
}

// Theme -----------------------------------------------------------------------

const kDark = matchMedia('(prefers-color-scheme: dark)');

function isDark() {
  const {theme} = document.documentElement.dataset;
  return theme ? theme === 'dark' : kDark.matches;
}

byId('theme').addEventListener('click', () => {
  const theme = isDark() ? 'light' : 'dark';
  // The system's own theme again: nothing is kept.
  if ((theme === 'dark') === kDark.matches) {
    delete document.documentElement.dataset.theme;
    setChoice('theme', null);
  } else {
    document.documentElement.dataset.theme = theme;
    setChoice('theme', theme);
  }
  announce(theme === 'dark' ? 'Dark' : 'Light');
});

// Chat and conversations ------------------------------------------------------

let list = null;  // the History, once there is one
const chat = new Chat({
  changed: (conversation) => {
    chats.keep(conversation);
    if (conversation === chat.conversation) nameInAddress(conversation.id);
    list.show();
  },
  running: () => list?.show(),
  answered: (request, {meta}) => {
    if (isOpen('cluster') && meta.tokens <= kTimesTokens) showTimes(request);
  },
  time: (request) => {
    if (!isOpen('cluster')) setPanel('cluster', true);
    showTimes(request);
    byId('times').scrollIntoView({block: 'nearest'});
  },
  key: askForKey,
  settings: openSettings,
});

// The address names the conversation, so that a reload shows it again.
function nameInAddress(id) {
  const wanted = `#chat-${id}`;
  if (location.hash !== wanted) {
    history.replaceState(null, '', wanted);
  }
}

function go(id) {
  if (isAbove('history')) setPanel('history', false, false);
  const wanted = id ? `#chat-${id}` : '';
  if (location.hash === wanted) showAddressed();
  else if (id) location.hash = wanted;
  else {
    history.pushState(null, '', location.pathname + location.search);
    showAddressed();
  }
  chat.focus();
}

// `anew`: the conversation is on the screen already.
async function showAddressed(anew = false) {
  const id = /^#chat-([\w-]+)$/.exec(location.hash)?.[1];
  const found = id && await chats.load(id).catch(() => undefined);
  chat.show(found ?? newConversation(settings.system), anew);
  list.show();
}

list = new History({
  current: () => chat.conversation,
  open: go,
  busy: (id) => chat.answers.has(id),
  closed: (id) => {
    chat.drop(id);
    if (chat.conversation.id === id) go(null);
  },
  renamed: async (id, title) => {
    const kept = chat.answers.get(id)?.conversation ??
        (chat.conversation.id === id ? chat.conversation :
                                       await chats.load(id));
    kept.title = title;
    await chats.keep(kept);
    list.show();
  },
});

byId('new-chat').addEventListener('click', () => go(null));
byId('new-chat-bar').addEventListener('click', () => go(null));
addEventListener('popstate', () => showAddressed());
addEventListener('beforeunload', (event) => {
  if (chats.hasUnwritten()) event.preventDefault();
});

// What could not be kept, for as long as it is not.
byId('trouble-export').addEventListener('click', () => list.exportAll());
chats.openChats({
  trouble: (why) => {
    byId('trouble').hidden = why === null;
    byId('trouble-text').textContent = why === null ? '' :
        `The browser does not keep this chat: ${why}. It is here until this ` +
        'tab is closed: export it, or delete chats to make room.';
  },
  // Another tab changed what is shown here.
  changed: async (id) => {
    list.show();
    if (id !== chat.conversation.id || chat.running || chat.isEdited()) return;
    if (!chats.heads.some((head) => head.id === id)) go(null);
    else await showAddressed(true);
  },
}).then(() => {
  list.show();
  if (location.hash) showAddressed();
});

// Keys ------------------------------------------------------------------------

document.addEventListener('keydown', (event) => {
  const typing = event.target.closest?.('input, textarea, select, dialog');
  if (event.key === 'Escape' && !event.target.closest?.('dialog')) {
    if (chat.running) chat.stop();
    else closeAbove();
  } else if (event.key === '/' && !typing && !event.ctrlKey &&
             !event.metaKey && !event.altKey) {
    event.preventDefault();
    byId('prompt').focus();
  }
});

// Cluster ---------------------------------------------------------------------

const watch = new ClusterWatch({
  trouble: (text) => { chat.trouble = text; },
  reading: ({model}) => {
    chat.setMaxContext(model.max_context ?? 0);
    chat.tellSilence();
    if (byId('model').textContent === model.name) return;
    byId('model').textContent = model.name;
    document.title = `${model.name} · Sluice`;
  },
});
setUpSettings(() => chat.conversation, () => watch.poll());
if (kMedium.matches) byId('prompt').focus();
