/**
 * The floor, live: a headline, the tasks, who waits, who holds what, what many gave back, and charts. The address says which tasks it is
 * about (task=a,b; without: all), and what the charts are of (hours, as).
 */

import { html, nothing, render } from '../lib/lit-html/lit-html.js';
import { locale, plural, t } from '../lang.js';
import { every, fixed, onDemand, onceAFrame } from '../parts.js';
import { Reader, keepListed, taskList } from '../reader.js';
import { nearly } from '../words.js';
import { Absent } from './floor/absent.js';
import { Charts } from './floor/charts.js';
import { Day } from './floor/day.js';
import { Held } from './floor/held.js';
import { headline } from './floor/headline.js';
import { periods } from './floor/history.js';
import { factsOf, fallsBehind, leftOf, summary, taskTable, troubledFirst } from './floor/tasks.js';
import { Unwanted } from './floor/unwanted.js';
import { Waiting } from './floor/waiting.js';

const patience = 1500; // ms for which parts that are read later keep the whole page from being shown: it would move under the pointer
const date = new Intl.DateTimeFormat(locale, { dateStyle: 'full', timeStyle: 'short' });
const number = (n) => n?.toLocaleString(locale) ?? '–';

export async function open(app, place) {
  new Floor(app, place).start();
}

/** The state that its parts share. */
class Floor {
  tasks = new Map(); // all, by name
  ends = new Map(); // the last `run` event of a run that ended, with its time, by the task's name
  chosen; // names of tasks; empty for all
  pausing = new Set(); // names of tasks that are being paused or resumed
  said = { at: -Infinity, text: '' }; // for screen readers
  #order = []; // names of the tasks as they are shown
  #whole = false; // everything was read once, or takes long

  constructor(app, { element, search, signal }) {
    this.app = app;
    this.alerts = app.alerts;
    this.element = element;
    this.signal = signal;
    this.address = search;
    this.manages = app.me.role === 'manager';
    this.chosen = new Set(search.get('task')?.split(',').filter(Boolean));
    this.draw = onceAFrame(() => this.#draw(), signal);
    this.list = new Reader(taskList(app.client, () => app.api.tasks()), () => this.#listed(), { signal });
    this.waiting = new Waiting(this);
    this.held = new Held(this);
    this.absent = new Absent(this);
    this.unwanted = new Unwanted(this);
    this.day = new Day(this);
    this.charts = new Charts(this);
  }

  get #parts() { return [this.waiting, this.held, this.absent, this.unwanted, this.day, this.charts]; }

  start() {
    const { client } = this.app;
    const on = (type, f) => client.addEventListener(type, f, { signal: this.signal });
    on('task', (e) => this.#changed(e.detail));
    on('run', (e) => this.#ran(e.detail));
    on('reread', () => this.charts.reread());
    this.alerts?.addEventListener('change', () => this.draw(), { signal: this.signal });
    keepListed(client, () => this.list.again(), this.signal);
    every(1000, () => this.#tick(), this.signal);
    const timer = setTimeout(() => {
      this.#whole = true;
      this.draw();
    }, patience);
    this.signal.addEventListener('abort', () => {
      clearTimeout(timer);
      client.unsubscribe([...this.tasks.keys()]);
    });
    this.list.again();
  }

  /** By the server's clock, as all times are. */
  now() { return Date.now() + this.app.client.ahead; }

  /** The tasks that it is about, by name; empty: all. */
  names() { return [...this.chosen]; }

  /** The tasks that it is about. */
  shown() { return [...this.tasks.values()].filter((task) => !this.chosen.size || this.chosen.has(task.name)); }

  titleOf(name) { return this.tasks.get(name)?.title || name; }

  /** All tasks, trouble first. While the pointer or the focus is among them, they keep their places. */
  ordered() {
    const table = this.element.querySelector('[data-part=tasks]');
    const sorted = troubledFirst(this.tasks.values(), this.now());
    if (!table?.matches(':hover, :focus-within')) this.#order = sorted.map((task) => task.name);
    const known = this.#order.map((name) => this.tasks.get(name)).filter(Boolean);
    return [...known, ...sorted.filter((task) => !known.includes(task))];
  }

  choose(names) {
    this.chosen = new Set(names);
    this.keep('task', names.join(','));
    for (const part of this.#parts) part.restart();
    this.draw();
  }

  /** Shows all tasks. The clicked button is about to disappear. */
  all() {
    this.choose([]);
    this.element.querySelector('#tasks-title').focus();
  }

  toggle(name) {
    this.choose(this.chosen.has(name) ? this.names().filter((other) => other !== name) : [...this.chosen, name]);
  }

  /** Keeps a choice in the address, for links and for the way back; an empty one is left out. */
  keep(name, value) {
    if (value) this.address.set(name, value);
    else this.address.delete(name);
    const query = this.address.toString().replaceAll('%2C', ',');
    history.replaceState(null, '', query ? `/floor?${query}` : '/floor');
  }

  dialogs(imported) { return onDemand(imported, this); }

  async release(filter) {
    const { app, signal } = this;
    const loaded = await this.dialogs(import('./release.js'));
    if (!loaded) return;
    if (await loaded.releaseDialog(app, { ...filter, signal })) this.held.restart();
    this.refocus('held');
  }

  /** Pauses or resumes a task here, where one sees the problem. */
  async pause(task) {
    const paused = !task.paused;
    const title = task.title || task.name;
    if (this.pausing.has(task.name)) return;
    this.pausing.add(task.name);
    this.draw();
    try {
      this.#changed(await this.app.api.setPaused(task.name, paused));
      this.app.say(paused ? t`${title} is paused: nothing is handed out, and waiting requests keep waiting.` : t`${title} goes on.`);
    } catch (e) {
      this.app.say(paused ? t`${title} can’t be paused: ${e.message}.` : t`${title} can’t be resumed: ${e.message}.`);
    }
    this.pausing.delete(task.name);
    this.draw();
  }

  /** The focused element may have disappeared; then the part's heading gets the focus. */
  refocus(part) {
    if (document.activeElement === document.body) this.element.querySelector(`[data-part=${part}] h2`)?.focus();
  }

  /** Reads data of some tasks: if one is not found, the list of tasks is outdated. */
  reader(read, changed, options) {
    const reader = new Reader(read, () => {
      if (reader.error?.status === 404) this.list.again();
      changed();
    }, { ...options, signal: this.signal });
    return reader;
  }

  #listed() {
    const { value, error } = this.list;
    if (!error) {
      const before = this.tasks;
      this.tasks = new Map(value.map((task) => [task.name, task]));
      this.app.client.unsubscribe([...before.keys()].filter((name) => !this.tasks.has(name)));
      this.app.client.subscribe([...this.tasks.keys()]);
      const known = this.names().filter((name) => this.tasks.has(name));
      if (known.length < this.chosen.size) this.choose(known); // a task was deleted, or has another name
      else if (before.size && value.some((task) => !before.has(task.name))) this.charts.restart();
      this.#again();
    }
    this.draw();
  }

  #changed(task) {
    if (!this.tasks.has(task.name)) return;
    this.tasks.set(task.name, task);
    if (!this.chosen.size || this.chosen.has(task.name)) this.#again();
    this.draw();
  }

  #ran(run) {
    const task = this.tasks.get(run.task);
    if (!task) return;
    const at = new Date(this.now()).toISOString();
    if (run.phase === 'started') task.running_since ??= at;
    else {
      task.running_since = null;
      this.ends.set(run.task, { ...run, at });
    }
    this.draw();
  }

  #again() {
    for (const part of this.#parts) part.again();
  }

  #tick() {
    const text = summary(this.shown(), this.now());
    if (text !== this.said.text && performance.now() - this.said.at > 10_000) this.said = { at: performance.now(), text };
    this.charts.tick();
    this.draw();
  }

  #draw() {
    this.#whole ||= Boolean(this.list.error || (this.list.value && !this.tasks.size)) || (this.tasks.size > 0 && this.#parts.every((part) => part.settled));
    if (!this.#whole) return;
    const part = document.activeElement.closest?.('[data-part]')?.dataset.part;
    render(this.#template(), this.element);
    if (part) this.refocus(part);
  }

  /** What the headline and the figures are about. */
  #figures() {
    const now = this.now();
    const tasks = this.shown();
    const titles = (some) => some.map((task) => task.title || task.name);
    const sum = (of) => tasks.reduce((n, task) => n + (of(task) ?? 0), 0);
    const known = (of) => (tasks.some((task) => of(task) !== null) ? sum(of) : null);
    const behind = tasks.filter((task) => fallsBehind(task, now));
    const others = tasks.filter((task) => leftOf(task) && !task.paused && !task.failures && !behind.includes(task));
    const last = others.every((task) => task.through_at) ? others.map((task) => task.through_at).sort().at(-1) : undefined;
    return {
      left: known(leftOf), done: known((task) => this.day.doneBy(task)), pace: sum((task) => task.pace), held: sum((task) => task.held),
      waiting: sum((task) => task.waiting), longest: this.waiting.longest, late: sum((task) => task.late),
      paused: tasks.length > 0 && tasks.every((task) => task.paused),
      failing: titles(tasks.filter((task) => task.failures)), lateIn: titles(tasks.filter((task) => task.late)),
      behind: behind.map((task) => ({ title: task.title || task.name, came: this.day.cameTo(task), done: this.day.doneBy(task), through: task.through_at ? nearly(task.through_at) : '' })),
      through: last ? nearly(last) : '',
    };
  }

  #template() {
    const { value, error } = this.list;
    const figures = this.tasks.size ? this.#figures() : null;
    const says = figures && headline(figures);
    return html`<div class="page floor">
      <header class="masthead"><h1 id="floor-title" tabindex="-1">${t`The floor`}</h1><p class="soft">${date.format(this.now())}</p>
        <div class="pick push" role="group" aria-label=${t`Time shown`}>${periods.map(({ name, span }) => html`
          <button type="button" aria-pressed=${span === this.charts.span || (span.hours <= 24 && this.charts.isToday)} @click=${() => this.charts.choose(span)}>${name}</button>`)}</div></header>
      <p class="sr" role="status">${this.said.text}</p>
      <p class="error" role="alert" dir="auto">${error ? t`The tasks can’t be brought up to date: ${error.message}.` : nothing}</p>
      ${value && !value.length ? html`<p class="empty">${t`There are no tasks yet, so there is nothing to see.`} ${this.manages
        ? html`<a href="/tasks">${t`Make the first one`}</a>.` : t`A manager makes them.`}</p>` : nothing}
      ${figures ? html`
        <div class="lead"><h2 class="headline" dir="auto">${says.title}</h2>${figureList(figures, this.held.people)}</div>
        ${taskTable(this)}
        ${this.chosen.size === 1 ? this.shown().map((task) => factsOf(task, this.ends.get(task.name))) : nothing}
        <div class="front">
          <article class="lead">${says.more ? html`<p class="more">${says.more}</p>` : nothing}${this.day.template(this.charts.span, this.charts.rows)}</article>
          <aside aria-label=${t`People`}>${this.waiting.template()}${this.absent.template()}</aside>
        </div>
        <div class="columns">${this.unwanted.template()}${this.held.template()}</div>
        ${this.charts.element}` : nothing}
    </div>`;
  }
}

function figureList({ left, done, pace, held, waiting, late }, people) {
  const figure = (n, name, time) => html`<div data-time=${time ?? nothing}><dt>${name}</dt><dd class=${time ? 'time' : nothing}>${n}</dd></div>`;
  return html`<dl class="figures">
    ${figure(number(left), t`left to do`)}
    ${figure(number(done), t`done today`)}
    ${figure(pace ? fixed(pace, pace < 10 && pace % 1 ? 1 : 0) : '–', t`done an hour`)}
    ${figure(number(held), people ? plural(people, 'held by {0} person', 'held by {0} people') : t`held`)}
    ${figure(number(waiting), plural(waiting, 'person waiting', 'people waiting'))}
    ${figure(number(late), t`late`, late ? 'fifth' : undefined)}
  </dl>`;
}

