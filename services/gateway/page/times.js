// Where the time of an answer's tokens went, of GET /debug/traces: the sums, and
// a column for each token. The parts' names are those of common/trace.

import {getJson} from './api.js';
import {byId, el, svg} from './dom.js';
import {milliseconds} from './picture.js';

const kWidth = 344;
const kHeight = 72;
const kMaxColumns = 150;  // more tokens than that share columns
const kMaxMedians = 4;  // of a column's height; what is above is cut

// The kind of a part, as the picture tells them apart.
function kindOf({part, where}) {
  if (where.startsWith('stage') && (part === 'compute' || part === 'sample')) {
    return where;
  }
  if (part === 'wire') return 'wire';
  return part === 'queue' || /(^|_)wait$/.test(part) ? 'wait' : 'gateway';
}

function nameOf(kind) {
  return {wire: 'Between processes', wait: 'Waits, also for other requests',
          gateway: 'Gateway and frames'}[kind] ?? `S${kind.slice(1)} computes`;
}

// Stages have colours of their own, the first four at least.
function classOf(kind) {
  const stage = /^stage (\d+)$/.exec(kind);
  return stage ? `part-stage-${stage[1] % 4}` : `part-${kind}`;
}

// Kinds in the order in which a step meets them: stages, ways, the rest.
function sorted(kinds) {
  const place = (kind) => kind.startsWith('stage') ?
      Number(kind.slice(6)) : 1000 + ['wire', 'wait', 'gateway'].indexOf(kind);
  return [...kinds].sort((a, b) => place(a) - place(b));
}

// Microseconds by kind, of a token's way from the token before it.
function ofToken({parts}) {
  const sums = new Map();
  for (const part of parts) {
    if (part.beside_next) continue;
    const kind = kindOf(part);
    sums.set(kind, (sums.get(kind) ?? 0) + part.stop_us - part.start_us);
  }
  return sums;
}

function total(sums) {
  return [...sums.values()].reduce((a, b) => a + b, 0);
}

function add(into, sums, share = 1) {
  for (const [kind, us] of sums) {
    into.set(kind, (into.get(kind) ?? 0) + us * share);
  }
}

// Runs of tokens as means, at most kMaxColumns of them.
function columnsOf(tokens) {
  const run = Math.max(1, Math.ceil(tokens.length / kMaxColumns));
  const columns = [];
  for (let at = 0; at < tokens.length; at += run) {
    const some = tokens.slice(at, at + run);
    const mean = new Map();
    for (const sums of some) add(mean, sums, 1 / some.length);
    columns.push(mean);
  }
  return columns;
}

function drawColumns(root, columns, kinds) {
  const heights = columns.map(total).sort((a, b) => a - b);
  const top = Math.min(heights.at(-1),
                       kMaxMedians * heights[heights.length >> 1]) || 1;
  const step = kWidth / columns.length;
  root.setAttribute('viewBox', `0 0 ${kWidth} ${kHeight}`);
  root.replaceChildren(...columns.flatMap((sums, i) => {
    let y = kHeight;
    const bars = [];
    for (const kind of kinds) {
      const height = Math.min((sums.get(kind) ?? 0) / top * kHeight, y);
      y -= height;
      if (height > 0) {
        bars.push(svg('rect', {
          class: classOf(kind), x: (i * step).toFixed(2), y: y.toFixed(2),
          width: (step * (step > 3 ? 0.8 : 1)).toFixed(2),
          height: height.toFixed(2)}));
      }
    }
    return bars;
  }));
}

// Shows the trace of a request in the cluster's panel.
export async function showTimes(request) {
  byId('times').hidden = false;
  byId('times-of').textContent = 'Reading …';
  try {
    const trace = await getJson(`debug/traces/${request}`, 20000);
    show(trace.choices[0]);
  } catch (error) {
    byId('times-of').textContent = `No times: ${error.message}`;
    byId('times-columns').replaceChildren();
    byId('times-parts').replaceChildren();
  }
}

function show({tokens, truncated}) {
  const after = tokens.slice(1).map(ofToken);  // the first one has the prompt
  const some = after.length > 0 ? after : tokens.map(ofToken);
  const sums = new Map();
  for (const one of some) add(sums, one);
  const kinds = sorted(sums.keys());
  const all = total(sums);
  const first = total(ofToken(tokens[0]));
  byId('times-of').textContent =
      `${tokens.length} tokens of the latest answer asked for` +
      `${truncated ? ', its beginning' : ''}: the first after ` +
      `${milliseconds(first / 1000)}, then ` +
      `${milliseconds(all / some.length / 1000)} each.`;
  drawColumns(byId('times-columns'), columnsOf(some), kinds);
  byId('times-parts').replaceChildren(...kinds.map((kind) => {
    const us = sums.get(kind);
    const share = 100 * us / all;
    return el('li', {},
        svg('svg', {class: 'swatch', viewBox: '0 0 8 8', 'aria-hidden': 'true'},
            svg('rect', {class: classOf(kind), width: 8, height: 8, rx: 2})),
        el('span', {}, nameOf(kind)),
        el('span', {}, milliseconds(us / some.length / 1000)),
        el('span', {}, `${share.toFixed(share < 10 ? 1 : 0)} %`));
  }));
}
