// Files that are sent as text: dropped, pasted or chosen, and shown above the
// message box until the message is sent.

import {announce, byId, el, icon} from './dom.js';
import {bytes} from './picture.js';

const kMaxBytes = 1 << 20;  // of a file
const kMaxFiles = 20;

// The file's text; throws an Error that says why it has none.
async function textOf(file) {
  if (file.size > kMaxBytes) {
    throw new Error(`“${file.name}” has ${bytes(file.size)}, ` +
                    `limit ${bytes(kMaxBytes)}`);
  }
  const data = new Uint8Array(await file.arrayBuffer());
  const wide = data[0] === 0xff && data[1] === 0xfe ? 'utf-16le' :
      data[0] === 0xfe && data[1] === 0xff ? 'utf-16be' : null;
  try {
    const text = new TextDecoder(wide ?? 'utf-8', {fatal: true}).decode(data);
    if (!text.includes('\0')) return text.replace(/\r\n?/g, '\n');
  } catch {}
  throw new Error(`“${file.name}” is not text: this model reads text`);
}

// Folders have no bytes to read: a browser says so by an error.
async function read(file) {
  try {
    return {name: file.name, text: await textOf(file)};
  } catch (error) {
    throw error.name === 'Error' ? error :
        new Error(`“${file.name}” cannot be read`);
  }
}

export class FileTray {
  // changed(): files were added or removed.
  constructor(changed) {
    this.changed = changed;
    this.files = [];
    const choose = byId('choose-files');
    byId('attach').addEventListener('click', () => choose.click());
    choose.addEventListener('change', () => {
      this.add([...choose.files]);
      choose.value = '';
    });
    byId('prompt').addEventListener('paste', (event) => {
      const files = [...event.clipboardData.files];
      if (files.length === 0) return;
      event.preventDefault();
      this.add(files);
    });
    this.listenToDrops(document.querySelector('main'));
  }

  listenToDrops(area) {
    let depth = 0;  // of the elements that the files are above
    const over = (step) => (event) => {
      if (!event.dataTransfer.types.includes('Files')) return;
      event.preventDefault();
      depth += step;
      document.body.classList.toggle('dropping', depth > 0);
    };
    area.addEventListener('dragenter', over(1));
    area.addEventListener('dragleave', over(-1));
    area.addEventListener('dragover', over(0));
    area.addEventListener('drop', (event) => {
      if (!event.dataTransfer.types.includes('Files')) return;
      event.preventDefault();
      depth = 0;
      document.body.classList.remove('dropping');
      this.add([...event.dataTransfer.files]);
    });
  }

  async add(files) {
    const refused = [];
    for (const file of files) {
      if (this.files.length >= kMaxFiles) {
        refused.push(`“${file.name}” is one file too many, ` +
                     `limit ${kMaxFiles}`);
        continue;
      }
      try {
        this.files.push(await read(file));
      } catch (error) {
        refused.push(error.message);
      }
    }
    this.show(refused);
    byId('prompt').focus();
    if (refused.length === 0) announce(`${files.length} attached`);
  }

  show(refused = []) {
    byId('tray').replaceChildren(
        ...this.files.map((file) => el('li', {class: 'chip'},
            `${file.name} · ${bytes(file.text.length)}`,
            el('button', {type: 'button', class: 'quiet',
                          'aria-label': `Remove ${file.name}`,
                          click: () => this.remove(file)}, icon('close')))));
    byId('refused').replaceChildren(
        ...refused.map((text) => el('p', {}, text)));
    this.changed();
  }

  remove(file) {
    this.files.splice(this.files.indexOf(file), 1);
    this.show();
    byId('prompt').focus();
  }

  // The files, which the tray then no longer has.
  take() {
    const {files} = this;
    this.files = [];
    this.show();
    return files;
  }
}
