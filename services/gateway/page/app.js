// Puts the page together: bar, panels, conversations, keys.

import {Chat} from './chat.js';
import {ClusterWatch} from './cluster.js';
import {announce, byId, el, icon} from './dom.js';
import {askForKey, setUpSettings} from './settings.js';
import {choice, conversations, followOtherTabs, newConversation,
        saveConversations, setChoice} from './store.js';

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

const chat = new Chat({
  changed: (conversation) => {
    if (!conversations.includes(conversation)) {
      conversations.unshift(conversation);
    }
    saveConversations();
    showHistory();
  },
  key: askForKey,
});

function open(conversation) {
  chat.show(conversation);
  showHistory();
  if (isAbove('history')) setPanel('history', false, false);
  chat.focus();
}

function forget(conversation) {
  conversations.splice(conversations.indexOf(conversation), 1);
  saveConversations();
  if (chat.conversation === conversation) chat.show(newConversation());
  showHistory();
}

function showHistory() {
  byId('conversations').replaceChildren(...conversations.map((one) =>
    el('li', {class: one === chat.conversation ? 'current' : null},
       el('button', {type: 'button', class: 'conversation',
                     'aria-current': one === chat.conversation ? 'true' : null,
                     click: () => open(one)}, one.title),
       el('button', {type: 'button', class: 'quiet delete',
                     'aria-label': `Delete “${one.title}”`,
                     click: () => forget(one)}, icon('close')))));
  byId('no-conversations').hidden = conversations.length > 0;
}

byId('new-chat').addEventListener('click', () => open(newConversation()));
byId('new-chat-bar').addEventListener('click', () => open(newConversation()));
showHistory();
followOtherTabs(() => chat.conversation, showHistory);

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
  reading: ({model}) => {
    if (byId('model').textContent === model.name) return;
    byId('model').textContent = model.name;
    document.title = `${model.name} · Sluice`;
  },
});
setUpSettings(() => watch.poll());
if (kMedium.matches) byId('prompt').focus();
