// Shows GET /openapi.json: endpoints, parameters, fields, answers, a command to
// try. It makes nodes and parses no HTML.

import {byId, copyButton, el} from './dom.js';

const kLimits = [
  ['minimum', 'from'], ['exclusiveMinimum', 'above'], ['maximum', 'to'],
  ['minLength', 'at least', 'characters'],
  ['maxLength', 'at most', 'characters'],
  ['minItems', 'at least', 'entries'], ['maxItems', 'at most', 'entries'],
  ['maxProperties', 'at most', 'members'], ['pattern', 'matches'],
];

let api = {};

function resolve(schema) {
  const path = schema?.$ref;
  if (!path) return schema ?? {};
  return path.slice(2).split('/').reduce((part, name) => part[name], api);
}

function nameOf(schema) {
  return schema?.$ref?.split('/').pop();
}

// `code` in a text becomes an element.
function prose(text) {
  return (text ?? '').split('`').map(
    (part, i) => (i % 2 ? el('code', {}, part) : part));
}

// "integer or null", "array of string", "ChatMessage".
function typeOf(schema) {
  if (nameOf(schema)) return nameOf(schema);
  if (schema.anyOf) {
    return [...new Set(schema.anyOf.map(typeOf))].join(' or ');
  }
  if (schema.type === undefined) {
    return schema.const !== undefined || schema.enum ? '' : 'any';
  }
  const types = [schema.type].flat();
  return types.map((type) => {
    if (type !== 'array' || !schema.items) return type;
    return `array of ${typeOf(schema.items)}`;
  }).join(' or ');
}

// The range and default of a value, as short texts.
function limitsOf(schema) {
  const limits = [];
  if (schema.const !== undefined) limits.push(JSON.stringify(schema.const));
  if (schema.enum) {
    limits.push(schema.enum.map((one) => JSON.stringify(one)).join(', '));
  }
  if (schema.not?.const !== undefined) {
    limits.push(`not ${JSON.stringify(schema.not.const)}`);
  }
  if (schema.format) {
    limits.push(schema.format);  // numbers beyond JavaScript's own
  } else {
    for (const [key, before, after] of kLimits) {
      if (schema[key] === undefined) continue;
      limits.push([before, schema[key], after].filter(
        (part) => part !== undefined).join(' '));
    }
  }
  for (const one of schema.anyOf ?? []) limits.push(...limitsOf(one));
  return limits;
}

function fieldRow(name, schema, required) {
  const limits = limitsOf(schema);
  if (schema.default !== undefined) {
    limits.push(`default ${JSON.stringify(schema.default)}`);
  }
  const use = schema['x-sluice-use'];
  return el('tr', {'data-field': name, 'data-use': use},
            el('td', {class: 'name'}, name, required ? ' *' : ''),
            el('td', {class: 'values'}, typeOf(schema),
               el('div', {}, limits.join('; '))),
            el('td', {}, ...prose(schema.description)));
}

function table(rows) {
  return el('div', {class: 'fields', tabindex: '0'},
            el('table', {},
               el('thead', {}, el('tr', {}, el('th', {}, 'name'),
                                  el('th', {}, 'value'),
                                  el('th', {}, 'meaning'))),
               el('tbody', {}, ...rows)));
}

function fields(schema) {
  const whole = resolve(schema);
  const required = new Set(whole.required);
  return table(Object.entries(whole.properties ?? {}).map(
    ([name, one]) => fieldRow(name, one, required.has(name))));
}

// The named schemas that `schema` leads to, each once.
function namedWithin(schema, found = new Map()) {
  if (Array.isArray(schema)) {
    schema.forEach((one) => namedWithin(one, found));
  } else if (schema && typeof schema === 'object') {
    const name = nameOf(schema);
    if (name && !found.has(name)) {
      found.set(name, resolve(schema));
      namedWithin(resolve(schema), found);
    }
    Object.values(schema).forEach((one) => namedWithin(one, found));
  }
  return found;
}

function detailsOf(schema) {
  const named = namedWithin(resolve(schema));
  return [...named].filter(([, one]) => one.properties).map(
    ([name, one]) => el('details', {}, el('summary', {}, name), fields(one)));
}

function command(path, method, operation) {
  const content = operation.requestBody?.content['application/json'];
  const address = location.origin + path;
  if (method === 'get') return `curl ${address}`;
  return `curl ${address} -H 'Content-Type: application/json' \\\n` +
    `  -d '${JSON.stringify(content?.example ?? {})}'`;
}

function answers(operation) {
  return Object.entries(operation.responses).map(([status, one]) => {
    const answer = resolve(one);
    const schema = answer.content?.['application/json']?.schema;
    return el('details', {},
              el('summary', {}, status, ' ', answer.description),
              schema && resolve(schema).properties ? fields(schema) : null,
              ...(schema ? detailsOf(schema) : []));
  });
}

function section(path, method, operation) {
  const text = command(path, method, operation);
  const body = operation.requestBody?.content['application/json'].schema;
  const parameters = (operation.parameters ?? []).map(resolve);
  return el('section', {id: operation.operationId},
            el('h2', {}, el('span', {class: 'method'}, method.toUpperCase()),
               ` ${path}`),
            el('p', {}, operation.summary),
            parameters.length > 0 && el('h3', {}, 'Parameters'),
            parameters.length > 0 && table(parameters.map(
              (one) => fieldRow(`${one.name} (${one.in})`,
                                {...one.schema, description: one.description},
                                one.required))),
            body && el('h3', {}, 'Fields'), body && fields(body),
            ...(body ? detailsOf(body) : []),
            el('h3', {}, 'Answers'), ...answers(operation),
            el('h3', {}, 'Try'), el('pre', {tabindex: '0'}, text),
            copyButton(() => text, `Copy the command for ${path}`));
}

function show() {
  const main = byId('document');
  main.replaceChildren(
    el('h1', {}, `${api.info.title} ${api.info.version}`),
    el('p', {class: 'muted'}, api.info.description));
  for (const [path, methods] of Object.entries(api.paths)) {
    for (const [method, operation] of Object.entries(methods)) {
      main.append(section(path, method, operation));
      byId('links').append(
        el('li', {}, el('a', {href: `#${operation.operationId}`},
                        `${method.toUpperCase()} ${path}`)));
    }
  }
}

byId('filter').addEventListener('input', (event) => {
  const wanted = event.target.value.trim().toLowerCase();
  for (const row of document.querySelectorAll('tr[data-field]')) {
    row.hidden = !row.dataset.field.toLowerCase().includes(wanted);
  }
});

try {
  const answer = await fetch('openapi.json');
  if (!answer.ok) throw new Error(`status ${answer.status}`);
  api = await answer.json();
  show();
  if (location.hash) byId(location.hash.slice(1))?.scrollIntoView();
} catch (error) {
  byId('document').append(
    el('p', {role: 'alert'}, `openapi.json cannot be shown: ${error.message}`));
}
byId('document').removeAttribute('aria-busy');
