/**
 * The floor, live: tasks, who waits, who holds what, what many gave back, and charts of the last hours. The address says which tasks it is about
 * (task=a,b; without: all), and how the charts are (hours, as).
 */

import { html, nothing, render } from '../lib/lit-html/lit-html.js';
import { t } from '../lang.js';
import { every, onDemand, onceAFrame } from '../parts.js';
import { Reader, keepListed, taskList } from '../reader.js';
import { Absent } from './floor/absent.js';
import { Charts } from './floor/charts.js';
import { Held } from './floor/held.js';
import { summary, taskRows } from './floor/tasks.js';
import { Unwanted } from './floor/unwanted.js';
import { Waiting } from './floor/waiting.js';

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

  constructor(app, { element, search, signal }) {
    this.app = app;
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
    this.charts = new Charts(this);
  }

  start() {
    const { client } = this.app;
    const on = (type, f) => client.addEventListener(type, f, { signal: this.signal });
    on('task', (e) => this.#changed(e.detail));
    on('run', (e) => this.#ran(e.detail));
    on('reread', () => this.charts.reread());
    keepListed(client, () => this.list.again(), this.signal);
    every(1000, () => this.#tick(), this.signal);
    this.signal.addEventListener('abort', () => client.unsubscribe([...this.tasks.keys()]));
    this.draw();
    this.list.again();
  }

  /** By the server's clock, as all times are. */
  now() { return Date.now() + this.app.client.ahead; }

  /** The tasks that it is about, by name; empty: all. */
  names() { return [...this.chosen]; }

  /** The tasks that it is about. */
  shown() { return [...this.tasks.values()].filter((task) => !this.chosen.size || this.chosen.has(task.name)); }

  titleOf(name) { return this.tasks.get(name)?.title || name; }

  choose(names) {
    this.chosen = new Set(names);
    this.keep('task', names.join(','));
    for (const part of [this.waiting, this.held, this.absent, this.unwanted, this.charts]) part.restart();
    this.draw();
  }

  /** The clicked button is about to disappear. */
  #all() {
    this.choose([]);
    this.element.querySelector('#floor-title').focus();
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
    for (const part of [this.waiting, this.held, this.absent, this.unwanted, this.charts]) part.again();
  }

  #tick() {
    const text = summary(this.shown(), this.now());
    if (text !== this.said.text && performance.now() - this.said.at > 10_000) this.said = { at: performance.now(), text };
    this.charts.tick();
    this.draw();
  }

  #draw() {
    const part = document.activeElement.closest?.('[data-part]')?.dataset.part;
    render(this.#template(), this.element);
    if (part) this.refocus(part);
  }

  #template() {
    const { value, error } = this.list;
    return html`<div class="page floor">
      <section data-part="tasks" aria-labelledby="floor-title">
        <div class="toolbar">
          <h1 id="floor-title" tabindex="-1">${t`Floor`}</h1>
          <span class="quiet">${value ? summary(this.shown(), this.now()) : nothing}</span>
          <button type="button" class="push" ?hidden=${!this.chosen.size} @click=${() => this.#all()}>${t`Show all tasks`}</button>
        </div>
        <p class="visually-hidden" role="status">${this.said.text}</p>
        <p class="error" role="alert" dir="auto">${error ? t`The tasks can’t be brought up to date: ${error.message}.` : nothing}</p>
        ${value && !value.length ? html`<p class="empty">${t`There are no tasks yet, so there is nothing to see.`} ${this.manages
          ? html`<a href="/tasks">${t`Make the first one`}</a>.` : t`A manager makes them.`}</p>` : nothing}
        ${this.tasks.size ? html`<h2 class="visually-hidden">${t`Tasks`}</h2>${taskRows(this)}` : nothing}
      </section>
      ${this.tasks.size ? html`
        <div class="floor-people">${this.waiting.template()}${this.held.template()}</div>
        ${this.absent.template()}
        ${this.unwanted.template()}
        ${this.charts.element}` : nothing}
    </div>`;
  }
}
