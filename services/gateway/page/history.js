// The panel of conversations: search, names, deletion that can be taken back,
// files out and in.

import * as chats from './chats.js';
import {byId, el, icon} from './dom.js';
import {exported, imported} from './transfer.js';

const kSearchFrom = 6;  // conversations, of which a search is of use
const kToastMs = 12000;

function download(name, text) {
  const link = el('a', {download: name, href: URL.createObjectURL(
      new Blob([text], {type: 'application/json'}))});
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

export class History {
  // hooks: {current(): the conversation that is shown, open(id), closed(id): a
  // conversation is to be deleted, busy(id): it is being answered,
  // renamed(id, title)}
  constructor(hooks) {
    this.hooks = hooks;
    this.timer = 0;  // that ends the toast
    byId('search').addEventListener('input', () => this.show());
    byId('export').addEventListener('click', () => this.exportAll());
    const choose = byId('choose-import');
    byId('import').addEventListener('click', () => choose.click());
    choose.addEventListener('change', async () => {
      const files = [...choose.files];
      choose.value = '';
      for (const file of files) await this.import(file);
    });
  }

  show() {
    const {heads} = chats;
    byId('search').parentNode.hidden = heads.length < kSearchFrom;
    const wanted = byId('search').value.trim().toLowerCase();
    const found = heads.filter(({title}) =>
      title.toLowerCase().includes(wanted));
    const focused = document.activeElement?.closest?.('#conversations li');
    const at = focused && {id: focused.dataset.id,
                           name: document.activeElement.className};
    byId('conversations').replaceChildren(
        ...found.map((head) => this.row(head)));
    const empty = byId('no-conversations');
    empty.hidden = found.length > 0;
    empty.textContent = heads.length > 0 ? 'None has such a name.' :
        'Conversations stay in this browser.';
    byId('export').disabled = heads.length === 0;
    if (at) {
      byId('conversations').querySelector(
          `[data-id="${at.id}"] [class="${at.name}"]`)?.focus();
    }
  }

  row({id, title}) {
    const current = id === this.hooks.current().id;
    return el('li', {class: current ? 'current' : null, 'data-id': id},
        el('button', {type: 'button', class: 'conversation',
                      'aria-current': current ? 'true' : null,
                      click: () => this.hooks.open(id)},
           this.hooks.busy(id) && el('span', {class: 'busy'},
               el('span', {class: 'offscreen'}, 'Being answered: ')), title),
        el('button', {type: 'button', class: 'quiet rename', title: 'Rename',
                      'aria-label': `Rename “${title}”`,
                      click: () => this.rename(id, title)}, icon('edit')),
        el('button', {type: 'button', class: 'quiet delete', title: 'Delete',
                      'aria-label': `Delete “${title}”`,
                      click: () => this.delete(id, title)}, icon('close')));
  }

  rename(id, title) {
    const row = byId('conversations').querySelector(`[data-id="${id}"]`);
    let done = false;
    const end = (name) => {
      if (done) return;
      done = true;
      if (name && name !== title) this.hooks.renamed(id, name);
      this.show();
      byId('conversations').querySelector(`[data-id="${id}"] .rename`)?.focus();
    };
    const field = el('input', {
      type: 'text', class: 'name', maxlength: 200, 'aria-label': 'Name',
      blur: () => end(field.value.trim()),
      keydown: (event) => {
        if (event.key !== 'Enter' && event.key !== 'Escape') return;
        event.preventDefault();
        event.stopPropagation();
        end(event.key === 'Enter' && field.value.trim());
      },
    });
    field.value = title;
    row.replaceChildren(field);
    field.select();
  }

  async delete(id, title) {
    const kept = await chats.load(id).catch(() => undefined);
    const row = byId('conversations').querySelector(`[data-id="${id}"]`);
    const next = row?.nextSibling ?? row?.previousSibling;
    this.hooks.closed(id);
    await chats.forget(id);
    this.show();
    (byId('conversations').querySelector(
        `[data-id="${next?.dataset.id}"] .conversation`) ??
     byId('new-chat')).focus();
    if (kept) this.offerUndo(kept, title);
  }

  offerUndo(conversation, title) {
    const end = this.say(`“${title}” is deleted.`, el('button', {
      type: 'button', class: 'plain', click: async () => {
        end();
        await chats.keep(conversation);
        this.hooks.open(conversation.id);
      }}, 'Undo'));
  }

  async exportAll() {
    const all = await chats.loadAll();
    const day = new Date().toISOString().slice(0, 10);
    download(`sluice-chats-${day}.json`, exported(all));
    this.say(`${all.length} exported.`);
  }

  async import(file) {
    let told;
    try {
      const read = imported(await file.text());
      for (const one of read) await chats.keep(one);
      told = `${read.length} imported from “${file.name}”.`;
      const shown = read.find(({id}) => id === this.hooks.current().id) ??
          (read.length === 1 ? read[0] : null);
      if (shown) this.hooks.open(shown.id);
    } catch (error) {
      told = `“${file.name}” was not imported: ${error.message}`;
    }
    this.say(told);
    this.show();
  }

  // Shows `text`, with `button` if there is one, for a while.
  say(text, button = '') {
    clearTimeout(this.timer);
    const end = () => byId('toast').replaceChildren();
    byId('toast').replaceChildren(el('span', {}, text), button);
    this.timer = setTimeout(end, kToastMs);
    return end;
  }
}
