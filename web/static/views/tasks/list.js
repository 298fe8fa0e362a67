/** All tasks at a glance: waiting requests, held work, and pause. */

import { html, nothing, render } from '../../lib/lit-html/lit-html.js';
import { repeat } from '../../lib/lit-html/directives/repeat.js';
import { age, every, onceAFrame } from '../../parts.js';
import { Reader, byTitle, keepListed, taskList } from '../../reader.js';
import { hasDraft } from './form.js';

const count = new Intl.NumberFormat();

export function openList(app, { element, signal }) {
  const list = new List(app, element, signal);
  const { client } = app;
  const again = () => list.reader.again();
  client.addEventListener('task', (e) => list.take(e.detail), { signal });
  keepListed(client, again, signal);
  signal.addEventListener('abort', () => client.unsubscribe([...list.tasks.keys()]));
  app.keys([{ key: 'n', does: 'New task', run: () => app.go('/tasks?new=1') }], signal);
  every(1000, list.draw, signal);
  list.draw();
  return again();
}

class List {
  constructor(app, element, signal) {
    this.app = app;
    this.tasks = new Map(); // by name
    this.errors = new Map(); // of pausing, by the task's name
    this.busy = new Set();
    this.draw = onceAFrame(() => render(this.template(), element), signal);
    this.reader = new Reader(taskList(app.client, () => app.api.tasks()), () => this.listed(), { signal });
  }

  listed() {
    const { value, error } = this.reader;
    if (!error) {
      const names = value.map((t) => t.name);
      this.app.client.unsubscribe([...this.tasks.keys()].filter((n) => !names.includes(n)));
      this.tasks = new Map(value.map((t) => [t.name, t]));
      this.app.client.subscribe(names);
    }
    this.draw();
  }

  /** If two answers overtake each other, the newer version counts. */
  take(task) {
    const known = this.tasks.get(task.name);
    if (!known || known.version > task.version) return;
    this.tasks.set(task.name, task);
    this.draw();
  }

  async pause(task, paused) {
    if (this.busy.has(task.name)) return;
    this.busy.add(task.name);
    this.errors.delete(task.name);
    this.draw();
    try {
      this.take(await this.app.api.setPaused(task.name, paused));
      this.app.say(`${task.title || task.name}: ${paused ? 'paused; nobody is handed anything' : 'resumed'}.`);
    } catch (e) {
      this.errors.set(task.name, e.message);
    }
    this.busy.delete(task.name);
    this.draw();
  }

  template() {
    const { value, error } = this.reader;
    const rows = [...this.tasks.values()].sort(byTitle);
    return html`<div class="page tasks">
      <div class="toolbar">
        <h1>Tasks</h1>
        <a class="button primary push" href="/tasks?new=1">New task <kbd>n</kbd></a>
      </div>
      ${error && !rows.length ? html`<p class="error" role="alert">The tasks can’t be shown now: ${error.message}.</p>` : nothing}
      ${hasDraft(this.app.me.user, '') ? html`<p class="notice">You began a task and have not created it.
        <a href="/tasks?new=1">Go on with it</a></p>` : nothing}
      ${value && !error && rows.length === 0 ? html`<p class="empty">There are no tasks yet.
        <a href="/tasks?new=1">Create the first one</a>.</p>` : nothing}
      ${rows.length ? html`<div class="card scroll" tabindex="0" role="region" aria-label="Tasks"><table class="task-list">
        <thead><tr><th scope="col">Task</th><th scope="col">Kind</th>
          ${['Waiting', 'Held', 'Shelf', 'Version'].map((title) => html`<th scope="col" class="number">${title}</th>`)}
          <th scope="col"><span class="visually-hidden">Pause</span></th></tr></thead>
        <tbody>${repeat(rows, (t) => t.name, (t) => this.row(t))}</tbody>
      </table></div>` : nothing}
    </div>`;
  }

  row(t) {
    const title = t.title || t.name;
    return html`<tr data-task=${t.name}>
      <th scope="row"><a href=${`/tasks/${t.name}`} dir="auto">${title}</a>
        <span class="under">${t.title ? html`<code>${t.name}</code>` : nothing}
          ${t.paused ? html`<span class="badge" data-kind="warn">paused</span>` : nothing}
          ${t.running_since
            ? html`<span class="badge" data-kind="busy">runs ${age(t.running_since, this.app.client.ahead)}</span>` : nothing}
          ${hasDraft(this.app.me.user, t.name) ? html`<span class="badge">not saved</span>` : nothing}</span>
        <span class="small quiet">${t.waiting} waiting · ${t.held} held · ${t.shelf} shelf</span>
        ${this.errors.has(t.name) ? html`<p class="error" role="alert">${this.errors.get(t.name)}</p>` : nothing}</th>
      <td>${t.query === null ? 'inbox' : 'query'}</td>
      ${[t.waiting, t.held, t.shelf].map((n) => html`<td class="number">${count.format(n)}</td>`)}
      <td class="number">${t.version}</td>
      <td class="act"><button type="button" class="pause" aria-disabled=${String(this.busy.has(t.name))}
          aria-label=${`${t.paused ? 'Resume' : 'Pause'} ${title}`}
        @click=${() => this.pause(t, !t.paused)}>${t.paused ? 'Resume' : 'Pause'}</button></td>
    </tr>`;
  }
}
