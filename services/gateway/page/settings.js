// The sheet of settings: system prompt, parameters, form of the answer, tools,
// mode, API key.

import {byId, el} from './dom.js';
import {parsedSetting} from './request.js';
import {apiKey, saveSettings, setApiKey, settings} from './store.js';

// name, label, lowest, highest, step, what it does.
const kParameters = [
  ['temperature', 'Temperature', 0, 2, 0.05,
   '0 always takes the likeliest token'],
  ['top_p', 'Top p', 0.01, 1, 0.01, 'The likeliest tokens up to this share'],
  ['top_k', 'Top k', 0, 1000000, 1, 'The k likeliest tokens; 0 is off'],
  ['min_p', 'Min p', 0, 1, 0.01, 'At least this share of the likeliest'],
  ['max_tokens', 'Max tokens', 1, 1000000, 1, 'The answer’s longest length'],
  ['seed', 'Seed', 0, 9007199254740991, 1, 'The same seed, the same answer'],
  ['presence_penalty', 'Presence penalty', -2, 2, 0.1,
   'Against tokens that were there'],
  ['frequency_penalty', 'Frequency penalty', -2, 2, 0.1,
   'By how often they were there'],
  ['repetition_penalty', 'Repetition penalty', 0.01, 10, 0.05,
   'Above 1 repeats less'],
];

function parameterField([name, label, min, max, step, hint]) {
  const id = `parameter-${name}`;
  const told = el('small', {id: `${id}-hint`}, hint);
  const input = el('input', {
    id, type: 'number', min, max, step: 'any', inputmode: 'decimal',
    placeholder: 'default', autocomplete: 'off',
    'aria-describedby': `${id}-hint`,
    input: () => {
      const value = input.valueAsNumber;
      input.setAttribute('aria-invalid', String(!input.validity.valid));
      told.textContent = input.validity.valid ? hint :
          `Not sent: ${input.validationMessage || 'not a number'}`;
      if (Number.isFinite(value) && input.validity.valid) {
        settings.parameters[name] = step === 1 ? Math.trunc(value) : value;
      } else {
        delete settings.parameters[name];
      }
      saveSettings();
    },
  });
  input.value = settings.parameters[name] ?? '';
  return el('div', {class: 'field'}, el('label', {for: id}, label), input,
            told);
}

let shown = null;  // gives the conversation that is on the screen

// Keeps the control `id` in the settings' member `name`.
function keepControl(id, name, changed = () => {}) {
  const control = byId(id);
  control.value = settings[name];
  control.addEventListener('input', () => {
    settings[name] = control.value;
    saveSettings();
    changed();
  });
  changed();
}

// Says below the control what is wrong with its JSON; an empty text is right.
function tellWrong(id, what, text, wantsArray) {
  let wrong = '';
  try {
    if (text.trim()) parsedSetting(what, text, wantsArray);
  } catch (error) {
    wrong = error.message;
  }
  byId(id).setAttribute('aria-invalid', String(wrong !== ''));
  byId(`${id}-wrong`).textContent = wrong;
}

// Fills the sheet and keeps the settings as they are changed. conversation()
// gives the one whose system prompt is shown; `onKey` is called after the API key
// has changed.
export function setUpSettings(conversation, onKey) {
  const sheet = byId('settings');
  byId('parameters').append(...kParameters.map(parameterField));

  const system = byId('system');
  system.addEventListener('input', () => {
    settings.system = conversation().system = system.value;
    saveSettings();
  });
  shown = conversation;

  keepControl('stop', 'stop');
  keepControl('thinking', 'thinking');
  keepControl('format', 'format', () => {
    byId('schema-field').hidden = settings.format !== 'schema';
  });
  keepControl('schema', 'schema', () => tellWrong(
      'schema', 'The schema', settings.schema, false));
  keepControl('tools', 'tools', () => tellWrong(
      'tools', 'The tools', settings.tools, true));

  for (const radio of sheet.querySelectorAll('input[name="mode"]')) {
    radio.checked = radio.value === settings.mode;
    radio.addEventListener('change', () => {
      settings.mode = radio.value;
      saveSettings();
    });
  }

  const key = byId('api-key');
  key.value = apiKey();
  key.addEventListener('change', () => {
    setApiKey(key.value.trim());
    onKey();
  });

  byId('reset').addEventListener('click', () => {
    settings.parameters = {};
    saveSettings();
    byId('parameters').replaceChildren(...kParameters.map(parameterField));
  });
  byId('open-settings').addEventListener('click', openSettings);
  byId('close-settings').addEventListener('click', () => sheet.close());
  // A click beside the sheet closes it.
  sheet.addEventListener('click', (event) => {
    if (event.target === sheet) sheet.close();
  });
}

export function openSettings() {
  byId('system').value = shown().system;
  byId('settings').showModal();
}

// Opens the sheet at the API key.
export function askForKey() {
  openSettings();
  byId('api-key').focus();
}
