/**
 * Chosen tasks on a big screen. People look at it from afar and for days, and do not touch it. So it recovers by itself, and
 * always says whether it is up to date.
 */

import { html, nothing, render } from '../lib/lit-html/lit-html.js';
import { live } from '../lib/lit-html/directives/live.js';
import { repeat } from '../lib/lit-html/directives/repeat.js';
import { locale, plural, t } from '../lang.js';
import { every, onceAFrame, span } from '../parts.js';
import { Reader, keepListed, taskList } from '../reader.js';
import { Ticker } from './wall/ticker.js';
import { condition, leftOf, tile } from './wall/tile.js';

const most = 12; // tiles on a page; more take turns
const turn = 12_000; // ms that a page stays
const few = 30; // tasks whose runs are read at once
const step = 5; // minutes of a bucket of the history
const words = { live: t`Live`, lagging: t`Late: some seconds behind`, connecting: t`Connecting …`, stopped: t`Stopped` };
const clock = new Intl.DateTimeFormat(locale, { timeStyle: 'short' });

export function open(app, { element, search, signal }) {
  new Wall(app, element, search.get('task')?.split(',').filter(Boolean) ?? [], signal);
}

class Wall {
  #app; #element; #signal;
  #chosen; // tasks' names in their order; none: all
  #tasks = new Map(); // all tasks, by name
  #list; // reads them
  #figures; // reads the figures that events do not have
  #known = new Map(); // of each task {oldest, buckets, last}
  #ran; // tasks whose runs must be read
  #ticker = new Ticker();
  #sure = Date.now(); // the time until which the figures are right
  #draw;
  #keepAwake;
  #page = 0; // of the tiles
  #stays = false; // pages don't take turns

  constructor(app, element, chosen, signal) {
    this.#app = app;
    this.#element = element;
    this.#chosen = chosen;
    this.#signal = signal;
    this.#draw = onceAFrame(() => this.#render(), signal);
    const list = taskList(app.client, () => app.api.tasks());
    this.#list = new Reader(async () => this.#take(await list()), this.#draw, { signal });
    this.#figures = new Reader(() => this.#readFigures(), this.#draw, { least: 2000, signal });
    this.#listen();
    this.#leavable();
    this.#keepAwake = awake(signal);
    every(1000, this.#draw, signal);
    every(turn, () => this.#turn(), signal);
    keepListed(app.client, () => this.#list.again(), signal);
    this.#list.again();
  }

  #listen() {
    const { client } = this.#app;
    const on = (type, f) => client.addEventListener(type, f, { signal: this.#signal });
    on('task', (e) => this.#heard(e.detail));
    on('run', (e) => this.#ranNow(e.detail));
    on('state', ({ detail }) => {
      if (detail.reason === 'patience') client.resume(); // nobody clicks on a wall
      this.#draw();
    });
    this.#signal.addEventListener('abort', () => client.unsubscribe([...this.#tasks.keys()]));
    document.addEventListener('fullscreenchange', this.#draw, { signal: this.#signal });
  }

  get #watches() { return ['observer', 'manager'].includes(this.#app.me.role); }
  get #details() { return !this.#app.me.wall; } // a screen that was opened by a link reads counts alone
  get #now() { return Date.now() + this.#app.client.ahead; }
  get #names() { return this.#chosen.length ? this.#chosen : [...this.#tasks.keys()]; }
  get #shown() { return this.#names.filter((name) => this.#tasks.has(name)); }
  get #pages() { return Math.max(1, Math.ceil(this.#names.length / most)); }

  /** The names of all pages, the worst first; tasks that are not there come last. */
  #ordered() {
    const now = this.#now;
    const rank = (name) => (this.#tasks.has(name) ? condition(this.#tasks.get(name), this.#known.get(name), now).rank : Infinity);
    return this.#names.map((name) => ({ name, rank: rank(name) })).sort((a, b) => a.rank - b.rank || 0).map(({ name }) => name);
  }

  #turn() {
    if (this.#stays || this.#pages < 2 || document.hidden) return;
    this.#page = (this.#page + 1) % this.#pages;
    this.#draw();
  }

  #take(tasks) {
    const before = this.#tasks;
    this.#tasks = new Map(tasks.map((t) => [t.name, t]));
    for (const t of tasks) if (before.has(t.name)) this.#ticker.task(before.get(t.name), t, this.#now);
    for (const name of this.#known.keys()) if (!this.#tasks.has(name)) this.#known.delete(name);
    this.#follow([...before.keys()]);
  }

  /** Follows what is shown, and nothing else. */
  #follow(before) {
    const shown = this.#shown;
    this.#app.client.unsubscribe(before.filter((name) => !shown.includes(name)));
    this.#app.client.subscribe(shown);
    this.#ran = new Set(shown);
    if (this.#watches && shown.length) this.#figures.restart();
  }

  #heard(task) {
    const before = this.#tasks.get(task.name);
    if (!before) return;
    this.#ticker.task(before, task, this.#now);
    this.#tasks.set(task.name, task);
    if (this.#watches) this.#figures.again();
    this.#draw();
  }

  #ranNow(run) {
    if (!this.#shown.includes(run.task)) return;
    this.#ticker.run(run.task, run, this.#now, this.#now);
    if (run.phase !== 'started') {
      this.#ran.add(run.task);
      const last = { ...run, state: run.phase, finished_at: new Date(this.#now).toISOString() };
      if (run.phase !== 'cancelled') this.#learn(run.task, { last });
      if (this.#watches) this.#figures.again(); // the events do not say how it failed
    }
    this.#draw();
  }

  #learn(name, more) { this.#known.set(name, { ...this.#known.get(name), ...more }); }

  async #readFigures() {
    const { api } = this.#app;
    const shown = this.#shown;
    const from = new Date((Math.floor(this.#now / (60_000 * step)) * step - 60) * 60_000).toISOString();
    const ran = new Set([...this.#ran].slice(0, few));
    this.#ran = new Set([...this.#ran].slice(few));
    try {
      const [{ tasks }] = await Promise.all([
        api.history({ task: shown.join(','), from, step: `${step}m` }),
        ...(this.#details ? shown.filter((name) => this.#tasks.get(name).waiting || this.#known.get(name)?.oldest).map((name) => this.#readOldest(name)) : []),
        ...(this.#details ? [...ran].map((name) => this.#readRuns(name)) : []),
      ]);
      for (const { task, buckets } of tasks) this.#learn(task, { buckets });
      if (this.#ran.size) this.#figures.again();
    } catch (e) {
      for (const name of ran) this.#ran.add(name);
      if (e.status === 404) this.#list.again(); // one is gone
      throw e;
    }
  }

  async #readOldest(name) {
    const { waiting } = this.#tasks.get(name);
    const [oldest] = waiting ? (await this.#app.api.waiting({ task: name, limit: 1 })).requests : [];
    this.#learn(name, { oldest });
  }

  async #readRuns(name) {
    const { runs } = await this.#app.api.runs(name, { limit: 4 });
    for (const run of runs) {
      this.#ticker.run(name, run, Date.parse(run.finished_at ?? run.started_at), this.#now);
    }
    this.#learn(name, { last: runs.find((run) => ['finished', 'failed', 'lost'].includes(run.state)) });
  }

  // Controls.

  /** Escape leads back; the controls appear when the pointer moves. */
  #leavable() {
    const signal = this.#signal;
    let timer;
    const wake = () => {
      this.#element.dataset.awake = '';
      clearTimeout(timer);
      timer = setTimeout(() => delete this.#element.dataset.awake, 4000);
    };
    for (const type of ['pointermove', 'pointerdown', 'keydown']) document.addEventListener(type, wake, { passive: true, signal });
    signal.addEventListener('abort', () => {
      clearTimeout(timer);
      if (document.fullscreenElement) document.exitFullscreen().catch(() => {});
    });
    this.#app.keys([{ key: 'Escape', does: t`Leave the wall`, run: () => this.#leave() }], signal);
  }

  #leave() {
    const chooser = this.#element.querySelector('details[open]');
    if (!chooser) return this.#app.go(this.#back);
    chooser.open = false;
    chooser.querySelector('summary').focus();
  }

  get #back() { return this.#watches ? '/floor' : '/'; }

  #stay() {
    this.#stays = !this.#stays;
    this.#draw();
  }

  #choose(name, on) {
    const all = [...this.#tasks.keys()];
    const now = this.#names.filter((n) => n !== name);
    if (on) now.push(name);
    this.#page = 0;
    this.#chosen = now.length === all.length && all.every((n) => now.includes(n)) ? [] : now;
    history.replaceState(null, '', this.#chosen.length ? `/wall?task=${this.#chosen.map(encodeURIComponent).join(',')}` : '/wall');
    this.#follow(all);
    this.#draw();
  }

  /** Also asks for the screen to stay on: some browsers grant that only after a click. */
  async #fullScreen() {
    this.#keepAwake();
    try {
      if (document.fullscreenElement) await document.exitFullscreen();
      else await document.documentElement.requestFullscreen();
    } catch {
      this.#app.say(t`This browser does not allow full screen here.`);
    }
  }

  // Drawing.

  #render() {
    const all = this.#ordered();
    const { ahead } = this.#app.client;
    const now = this.#now;
    this.#page = Math.min(this.#page, this.#pages - 1);
    const names = all.slice(this.#page * most, (this.#page + 1) * most);
    this.#element.style.setProperty('--columns', columns(names.length));
    render(html`<div class="wall">
      <header>
        ${this.#brand}
        <h1><span class="sr">${t`Wall`}</span><time class="wall-clock" aria-hidden="true">${clock.format(new Date(now))}</time></h1>
        ${this.#state()}
        <p class="push totals">${this.#totals(all.length - names.length)}</p>
        ${this.#controls()}
      </header>
      <ul class="tiles">${repeat(names, (name) => name, (name) => {
        const task = this.#tasks.get(name);
        return task ? tile(task, this.#known.get(name), now, ahead) : this.#missing(name);
      })}</ul>
      <section class="ticker" role="log" aria-label=${t`What happened last`}>
        <h2 class="sr">${t`What happened last`}</h2>
        ${this.#ticker.draw((name) => (all.includes(name) ? this.#titleOf(name) : undefined))}
      </section>
    </div>`, this.#element);
  }

  #brand = document.querySelector('.top .brand')?.cloneNode(true);

  /** What is done and left under all that the wall is about, and how many tasks are on other pages. */
  #totals(more) {
    const tasks = this.#shown.map((name) => this.#tasks.get(name));
    const sum = (of) => (tasks.some((task) => typeof of(task) === 'number') ? tasks.reduce((n, task) => n + (of(task) ?? 0), 0) : null);
    const [done, left] = [sum((task) => task.done_today), sum(leftOf)];
    return html`${done === null ? nothing : html`<span>${t`${html`<b>${done.toLocaleString(locale)}</b>`} done today`}</span> `}
      ${left === null ? nothing : html`<span>${t`${html`<b>${left.toLocaleString(locale)}</b>`} left`}</span> `}
      ${more ? html`<span class="more-tasks">${plural(more, '+{0} more, page {1} of {2}', '+{0} more, page {1} of {2}', this.#page + 1, this.#pages)}</span>` : nothing}`;
  }

  #titleOf(name) { return this.#tasks.get(name)?.title || name; }

  #missing(name) {
    const why = this.#list.at ? t`There is no such task, or it is not open to you.` : t`Reading …`;
    return html`<li class="tile wash" data-kind="missing" data-time="fifth"><article><h2 dir="auto">${name}</h2><p class="big">–</p><p><span>${why}</span></p></article></li>`;
  }

  /** Whether the figures are current, or of what time they are. */
  #state() {
    const { state } = this.#app.client;
    const pushed = state.name === 'live' || state.name === 'lagging';
    const failed = this.#list.error ?? this.#figures.error;
    this.#sure = pushed ? Date.now() : Math.max(this.#sure, this.#list.at ?? 0);
    const old = Date.now() - this.#sure;
    const word = state.name === 'polling' ? t`Polling every ${state.every / 1000} s` : words[state.name];
    return html`<p class="live wall-state" role="status" data-state=${failed ? 'polling' : state.name}>
      <span>${failed && pushed ? t`${word}; some figures can’t be read now` : word}</span>
      ${pushed || old < 2000 ? nothing : html`<span class="wall-age" aria-hidden="true">· ${t`what you see is ${span(old)} old`}</span>`}</p>`;
  }

  #controls() {
    const names = this.#names;
    const all = new Set([...this.#tasks.keys(), ...names]); // tasks that no longer exist can be removed
    return html`<div class="wall-controls">
      <details class="chooser"><summary class="button">${t`Tasks (${names.length})`}</summary>
        <fieldset><legend class="sr">${t`Tasks to show`}</legend>
          ${repeat(all, (name) => name, (name) => html`<label>
            <input type="checkbox" .checked=${live(names.includes(name))} @change=${(e) => this.#choose(name, e.target.checked)}>
            <span dir="auto">${this.#titleOf(name)}</span></label>`)}
        </fieldset></details>
      ${document.fullscreenEnabled ? html`<button type="button" @click=${() => this.#fullScreen()}>
        ${document.fullscreenElement ? t`Leave full screen` : t`Full screen`}</button>` : nothing}
      ${this.#pages > 1 ? html`<button type="button" class="stay" aria-pressed=${this.#stays} @click=${() => this.#stay()}>${t`Stay on this page`}</button>` : nothing}
      <a class="button back" href=${this.#back}>${t`Back`} <kbd>${t`Esc`}</kbd></a>
    </div>`;
  }
}

/** How many tiles a row has on a broad screen. */
const columns = (n) => (n < 2 ? 1 : n < 5 ? 2 : n < 10 ? 3 : 4);

/**
 * Keeps the screen on, if the browser can, until the signal. The browser stops when the page is hidden for a while. Returns a
 * function that asks again.
 */
function awake(signal) {
  let lock = null;
  const held = () => lock && !lock.released;
  const ask = async () => {
    if (document.hidden || held()) return;
    const got = await navigator.wakeLock?.request('screen').catch(() => null);
    if (signal.aborted || held()) got?.release(); // meanwhile the view was left, or asked twice
    else lock = got;
  };
  document.addEventListener('visibilitychange', ask, { signal });
  signal.addEventListener('abort', () => lock?.release());
  ask();
  return ask;
}
