// The picture of the cluster: the gateway, a card per stage with a cell for
// each layer on each rank, and the ways between them. Built once per shape of
// the cluster; a new reading only changes texts, classes and opacities.

import {svg} from './dom.js';

const kWidth = 344;
const kLeft = 8;
const kCard = 304;  // cards' width; the way back runs on their right
const kPad = 14;
const kGatewayHeight = 58;
const kWay = 38;  // between cards
const kCells = kCard - 2 * kPad;
const kMaxCells = 120;  // more layers are drawn as one bar per rank
const kMaxRows = 8;

// A stage that only waits for the others says so.
export function stateText(state) {
  return state === 'handshaking' ? 'waiting' : state;
}

export function layersText(stage) {
  return stage.last_layer > 0 ?
      `layers [${stage.first_layer}, ${stage.last_layer})` : 'layers unknown';
}

// Few digits: "0", "7.2", "131".
export function rateText(value) {
  return value.toFixed(value > 0 && value < 9.95 ? 1 : 0);
}

export function milliseconds(value) {
  if (value === null || value === undefined) return '–';
  if (value < 0.1) return `${Math.round(value * 1000)} µs`;
  return value < 10 ? `${value.toFixed(2)} ms` : `${Math.round(value)} ms`;
}

// "84 ms", "1.2 s"
export function seconds(ms) {
  return ms < 1000 ? `${Math.round(ms)} ms` : `${(ms / 1000).toFixed(1)} s`;
}

export function bytes(value) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    ++unit;
  }
  return `${value < 10 && unit > 0 ? value.toFixed(1) :
      Math.round(value)} ${units[unit]}`;
}

function plural(count, noun) {
  return `${count} ${noun}${count === 1 ? '' : 's'}`;
}

function text(x, y, className, anchor = 'start') {
  return svg('text', {x, y, class: className, 'text-anchor': anchor});
}

// What of the cluster makes up the picture's shape.
function shapeOf(cluster) {
  return JSON.stringify(cluster.stages.map((stage) =>
    [stage.first_layer, stage.last_layer, stage.ranks]));
}

export class Picture {
  // root: the svg element.
  constructor(root) {
    this.root = root;
    this.shape = '';
  }

  // cluster: as /cluster says; rates: see cluster.js.
  show(cluster, rates) {
    const shape = shapeOf(cluster);
    if (shape !== this.shape) {
      this.build(cluster);
      this.shape = shape;
    }
    this.root.classList.toggle('stale', Boolean(rates.stale));
    this.root.classList.toggle(
        'flowing', rates.tokens > 0 && cluster.ready && !rates.stale);
    this.showGateway(cluster, rates);
    cluster.stages.forEach((stage, i) => this.showStage(
        this.stages[i], stage, rates.busy[i] ?? 0, cluster));
  }

  build(cluster) {
    this.root.replaceChildren();
    this.stages = [];
    let y = 6;
    this.gateway = this.buildGateway(y);
    y += kGatewayHeight;
    const top = y - kGatewayHeight / 2;
    for (const stage of cluster.stages) {
      const way = this.buildWay(y);
      y += kWay;
      const card = this.buildStage(stage, y);
      card.way = way;
      y += card.height;
      this.stages.push(card);
    }
    this.buildWayBack(top, y - this.stages.at(-1).height / 2);
    this.root.setAttribute('viewBox', `0 0 ${kWidth} ${y + 8}`);
  }

  buildCard(y, height, className) {
    const group = svg('g', {class: className,
                            transform: `translate(${kLeft} ${y})`},
                      svg('rect', {class: 'card', width: kCard, height,
                                   rx: 10}));
    this.root.append(group);
    return group;
  }

  buildGateway(y) {
    const group = this.buildCard(y, kGatewayHeight, 'gateway');
    const dot = svg('circle', {class: 'dot', cx: kPad + 4, cy: 21, r: 4});
    const name = text(kPad + 16, 25, 'name');
    const rate = text(kCard - kPad, 25, 'rate', 'end');
    const detail = text(kPad, 45, 'detail');
    name.textContent = 'Gateway';
    group.append(dot, name, rate, detail);
    return {group, rate, detail};
  }

  // The way into the card below `y`.
  buildWay(y) {
    const x = kLeft + kCard / 2;
    const label = text(x + 12, y + kWay / 2 + 4, 'hop');
    const group = svg('g', {class: 'way'},
                      svg('path', {class: 'line',
                                   d: `M${x} ${y + 3}V${y + kWay - 4}`}),
                      svg('path', {class: 'tip',
                                   d: `M${x - 4} ${y + kWay - 9}l4 5l4 -5`}),
                      label);
    this.root.append(group);
    return {group, label};
  }

  buildWayBack(top, bottom) {
    const x = kLeft + kCard;
    const out = x + 17;
    this.root.append(svg('g', {class: 'way back'},
        svg('path', {class: 'line', d: `M${x + 3} ${bottom}H${out - 8}` +
            `q8 0 8 -8V${top + 8}q0 -8 -8 -8H${x + 4}`}),
        svg('path', {class: 'tip', d: `M${x + 9} ${top - 4}l-5 4l5 4`})));
    const label = text(0, 0, 'hop', 'middle');
    label.setAttribute('transform',
        `translate(${out + 12} ${(top + bottom) / 2}) rotate(90)`);
    label.textContent = 'sampled tokens';
    this.root.append(label);
  }

  buildStage(stage, y) {
    const rows = Math.min(Math.max(stage.ranks, 1), kMaxRows);
    const pitch = rows > 1 ? 13 : 15;
    const height = 84 + rows * pitch;
    const group = this.buildCard(y, height, 'stage');
    const dot = svg('circle', {class: 'dot', cx: kPad + 4, cy: 21, r: 4});
    const name = text(kPad + 16, 25, 'name');
    const state = text(kCard - kPad, 25, 'state', 'end');
    const layers = text(kPad, 45, 'detail strong');
    const ranks = text(kCard - kPad, 45, 'detail', 'end');
    const {group: grid, cells} = this.buildCells(stage, rows, pitch);
    const load = text(kPad, height - 14, 'detail why');
    const kv = text(kCard - kPad, height - 14, 'detail', 'end');
    const title = svg('title');
    group.append(title, dot, name, state, layers, ranks, grid, load, kv);
    return {group, height, title, name, state, layers, ranks, cells, load, kv};
  }

  // A row per rank, a cell per layer.
  buildCells(stage, rows, pitch) {
    const group = svg('g', {transform: `translate(${kPad} 56)`});
    const cells = svg('g', {class: 'cells'});
    group.append(cells);
    const count = stage.last_layer - stage.first_layer;
    const columns = count > 0 && count <= kMaxCells ? count : 1;
    const left = rows > 1 ? 16 : 0;
    const step = (kCells - left) / columns;
    const gap = columns === 1 ? 0 : Math.min(2, step / 4);
    for (let row = 0; row < rows; ++row) {
      if (rows > 1) {
        const label = text(0, row * pitch + 8, 'rank');
        label.textContent = row;
        group.append(label);
      }
      for (let column = 0; column < columns; ++column) {
        cells.append(svg('rect', {
          class: 'cell', x: (left + column * step).toFixed(2), y: row * pitch,
          width: (step - gap).toFixed(2), height: pitch - 4,
          rx: Math.min(2, step / 4).toFixed(2),
        }));
      }
    }
    return {group, cells};
  }

  showGateway(cluster, rates) {
    const {group, rate, detail} = this.gateway;
    const {engine} = cluster;
    group.dataset.state = rates.stale ? 'lost' :
        cluster.ready ? 'ready' : 'suspect';
    rate.textContent = `${rateText(rates.tokens)} tokens/s`;
    detail.textContent = rates.stale ? 'does not answer' :
        `${engine.running} running · ${engine.waiting} queued · ` +
        `step ${milliseconds(engine.last_step_ms)}`;
  }

  showStage(card, stage, busy, cluster) {
    card.group.dataset.state = stage.state;
    card.way.group.dataset.state = stage.state;
    card.name.textContent = `Stage ${stage.index}`;
    card.state.textContent = stateText(stage.state);
    card.layers.textContent = layersText(stage);
    card.ranks.textContent = stage.ranks > 0 ?
        `${plural(stage.ranks, 'rank')} · ${plural(stage.threads, 'thread')}` +
        (stage.ranks > 1 ? ' each' : '') : '';
    card.cells.setAttribute('opacity', (0.3 + 0.7 * busy).toFixed(2));
    const ready = stage.state === 'ready';
    card.load.textContent = ready ? `busy ${Math.round(100 * busy)} %` :
        shortened(stage.message || stage.address);
    card.kv.textContent = ready ?
        `KV ${bytes(stage.kv_bytes * cluster.engine.kv_usage)} of ` +
        bytes(stage.kv_bytes) : '';
    card.title.textContent =
        `Stage ${stage.index} at ${stage.address}, ${layersText(stage)}, ` +
        `${stage.state}${stage.message ? `: ${stage.message}` : ''}`;
    card.way.label.textContent = ready ? hopText(stage, cluster) : '';
  }
}

// gRPC's long messages end with what matters: "...: Connection refused".
function shortened(message) {
  if (message.length <= 46) return message;
  const last = message.slice(message.lastIndexOf(': ') + 2);
  return last.length <= 46 ? last : `${message.slice(0, 45)}…`;
}

// The way into a stage: from the stage before it as that one measured it,
// from the gateway as heartbeats do.
function hopText(stage, cluster) {
  const before = cluster.stages[stage.index - 1];
  const measured = before?.hop_ms ?? null;
  return measured !== null ? milliseconds(measured) :
      `${milliseconds(stage.rtt_ms)} ${before ? 'heartbeat' : ''}`;
}
