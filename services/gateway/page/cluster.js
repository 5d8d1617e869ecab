// Watches /cluster: the pill in the bar, the tiles, the picture, and a log of
// what changed.

import {ApiError, getJson} from './api.js';
import {announce, byId, el} from './dom.js';
import {Picture, layersText, rateText, stateText} from './picture.js';

const kPollMs = 500;
const kHiddenPollMs = 5000;  // with the page in the background
const kRateWindowMs = 1500;
const kHistory = 60;  // points of the line, one a second
const kMaxEvents = 30;

function stageName(stage) {
  return `Stage ${stage.index} (${layersText(stage)}, ${stage.address})`;
}

// Rates between two readings; both may be of the same moment.
function ratesBetween(old, now) {
  const seconds = (now.time_ms - old.time_ms) / 1000;
  const none = {tokens: 0, busy: now.stages.map(() => 0)};
  if (!(seconds > 0) || old.stages.length !== now.stages.length) return none;
  const tokens = now.engine.generation_tokens - old.engine.generation_tokens;
  return {
    tokens: Math.max(0, tokens / seconds),
    busy: now.stages.map((stage, i) => {
      const busy = (stage.busy_ms - old.stages[i].busy_ms) / 1000 / seconds;
      return Math.min(Math.max(busy, 0), 1);
    }),
  };
}

export class ClusterWatch {
  // hooks: {reading(cluster)}, called for each answer; {trouble(text)}, why no
  // tokens may come, or ''.
  constructor(hooks) {
    this.hooks = hooks;
    this.picture = new Picture(byId('picture'));
    this.readings = [];  // the latest seconds
    this.line = new Array(kHistory).fill(0);  // tokens/s
    this.lineAt = 0;
    this.latest = null;
    this.states = new Map();  // of the stages by address, as last told
    this.timer = 0;
    document.addEventListener('visibilitychange', () => this.poll());
    this.poll();
  }

  async poll() {
    clearTimeout(this.timer);
    const round = this.round = (this.round ?? 0) + 1;
    let failure = null;
    let reading = null;
    try {
      reading = await getJson('cluster', 2000);
    } catch (error) {
      failure = error;
    }
    if (round !== this.round) return;  // a later one is under way
    this.timer = setTimeout(() => this.poll(),
                            document.hidden ? kHiddenPollMs : kPollMs);
    if (reading) this.show(reading);
    else this.showFailure(failure);
  }

  show(cluster) {
    this.readings = this.readings.filter((one) =>
      cluster.time_ms - one.time_ms < kRateWindowMs &&
      cluster.time_ms >= one.time_ms);
    const rates = ratesBetween(this.readings[0] ?? cluster, cluster);
    this.readings.push(cluster);
    this.latest = cluster;
    byId('no-cluster').hidden = true;
    byId('picture').removeAttribute('hidden');
    this.picture.show(cluster, rates);
    this.showTiles(cluster, rates);
    this.showFacts(cluster);
    this.tellChanges(cluster);
    this.showPill(cluster);
    this.hooks.reading(cluster);
  }

  showFailure(error) {
    const refused = error instanceof ApiError && error.status === 401;
    const text = refused ? 'key needed' : 'no gateway';
    this.setPill(refused ? 'suspect' : 'lost', text);
    if (this.latest && !refused) {
      this.picture.show(this.latest, {tokens: 0, busy: [], stale: true});
    } else {
      byId('no-cluster').hidden = false;
      byId('no-cluster').textContent = refused ?
          'This gateway wants an API key: enter it in the settings.' :
          'The gateway does not answer.';
    }
    if (this.failing !== text) this.log('lost', error.message);
    this.failing = text;
    this.readings = [];
  }

  showTiles({engine}, rates) {
    byId('tile-rate').textContent = rateText(rates.tokens);
    byId('tile-running').textContent = engine.running;
    byId('tile-queued').textContent = engine.waiting;
    byId('tile-kv').textContent = `${rateText(100 * engine.kv_usage)} %`;
    byId('meter-kv').style.width = `${100 * engine.kv_usage}%`;
    if (performance.now() - this.lineAt < 1000) return;
    this.lineAt = performance.now();
    this.line = [...this.line, rates.tokens].slice(-kHistory);
    const top = Math.max(1, ...this.line);
    const points = this.line.map((value, i) =>
      `${(i * 120 / (kHistory - 1)).toFixed(1)},` +
      (30 - 27 * value / top).toFixed(1)).join(' ');
    byId('line').setAttribute('points', points);
    byId('line-area').setAttribute('points', `0,32 ${points} 120,32`);
  }

  showFacts(cluster) {
    const {engine, model} = cluster;
    const facts = [
      ['Model', model.name],
      ['Layers', model.num_layers || '–'],
      ['Weights', model.weights_dtype || '–'],
      ['Context', model.max_context ? `${model.max_context} tokens` : '–'],
      ['KV blocks', `${engine.blocks_used} of ${engine.blocks_total}`],
      ['Prefix cache hits', engine.prefix_query_tokens > 0 ? `${Math.round(
          100 * engine.prefix_hit_tokens / engine.prefix_query_tokens)} %` :
          '–'],
      ['Steps', engine.steps],
      ['Tokens generated', engine.generation_tokens],
      ['Epoch', `${cluster.term}.${cluster.epoch}`],
      ['Version', cluster.version],
    ];
    byId('facts').replaceChildren(...facts.flatMap(([name, value]) =>
      [el('dt', {}, name), el('dd', {}, String(value))]));
  }

  // Logs and announces stages that changed their state.
  tellChanges(cluster) {
    if (this.failing) this.log('ready', 'The gateway answers again');
    this.failing = null;
    const first = this.states.size === 0;
    for (const stage of cluster.stages) {
      // That a stage waits for the others is not its own news.
      if (stage.state === 'handshaking' ||
          stage.state === this.states.get(stage.address)) {
        continue;
      }
      this.states.set(stage.address, stage.state);
      const why = stage.state === 'ready' || !stage.message ? '' :
          `: ${stage.message}`;
      if (!first || stage.state !== 'ready') {
        this.log(stage.state, `${stageName(stage)} is ${stage.state}${why}`);
      }
    }
    byId('picture').setAttribute('aria-label',
        `Gateway ${cluster.ready ? 'ready' : 'not ready'}. ` +
        cluster.stages.map((s) => `${stageName(s)} is ${stateText(s.state)}`)
            .join('. '));
  }

  showPill(cluster) {
    if (cluster.ready) {
      this.setPill('ready', 'ready');
      return;
    }
    const bad = cluster.stages.find((s) => s.state === 'lost') ??
        cluster.stages.find((s) => s.state !== 'ready' &&
                                   s.state !== 'handshaking');
    this.setPill(bad?.state ?? 'suspect',
                 bad ? `stage ${bad.index} ${bad.state}` : 'not ready');
  }

  setPill(state, text) {
    const pill = byId('pill');
    this.hooks.trouble(state === 'ready' ? '' : text);
    if (byId('pill-text').textContent === text) return;
    pill.dataset.state = state;
    byId('pill-text').textContent = text;
  }

  log(state, text) {
    announce(text);
    const time = new Date().toLocaleTimeString([], {hour12: false});
    byId('events').prepend(el('li', {'data-state': state},
        el('time', {}, time), el('span', {}, text)));
    while (byId('events').children.length > kMaxEvents) {
      byId('events').lastChild.remove();
    }
    byId('no-events').hidden = true;
  }
}
