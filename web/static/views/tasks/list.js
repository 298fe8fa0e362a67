/** All tasks at a glance: waiting requests, held work, and pause. */

import { html, nothing, render } from '../../lib/lit-html/lit-html.js';
import { repeat } from '../../lib/lit-html/directives/repeat.js';
import { locale, t } from '../../lang.js';
import { age, every, onceAFrame } from '../../parts.js';
import { Reader, byTitle, keepListed, taskList } from '../../reader.js';
import { hasDraft } from './form.js';

const count = new Intl.NumberFormat(locale);

export function openList(app, { element, signal }) {
  const list = new List(app, element, signal);
  const { client } = app;
  const again = () => list.reader.again();
  client.addEventListener('task', (e) => list.take(e.detail), { signal });
  keepListed(client, again, signal);
  signal.addEventListener('abort', () => client.unsubscribe([...list.tasks.keys()]));
  app.keys([{ key: 'n', does: t`New task`, run: () => app.go('/tasks?new=1') }], signal);
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
      this.app.say(paused ? t`${task.title || task.name}: paused; nobody is handed anything.` : t`${task.title || task.name}: resumed.`);
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
        <h1>${t`Tasks`}</h1>
        <a class="button primary push" href="/tasks?new=1">${t`New task`} <kbd>n</kbd></a>
      </div>
      ${error && !rows.length ? html`<p class="error" role="alert">${t`The tasks can’t be shown now: ${error.message}.`}</p>` : nothing}
      ${hasDraft(this.app.me.user, '') ? html`<p class="notice">${t`You began a task and have not created it.`}
        <a href="/tasks?new=1">${t`Go on with it`}</a></p>` : nothing}
      ${value && !error && rows.length === 0 ? html`<p class="empty">${t`There are no tasks yet.`}
        <a href="/tasks?new=1">${t`Create the first one`}</a>.</p>` : nothing}
      ${rows.length ? html`<div class="card scroll" tabindex="0" role="region" aria-label=${t`Tasks`}><table class="task-list">
        <thead><tr><th scope="col">${t`Task`}</th><th scope="col">${t`Kind`}</th>
          ${[t`Waiting`, t`Held`, t`Shelf`, t`Version`].map((title) => html`<th scope="col" class="number">${title}</th>`)}
          <th scope="col"><span class="visually-hidden">${t`Pause`}</span></th></tr></thead>
        <tbody>${repeat(rows, (task) => task.name, (task) => this.row(task))}</tbody>
      </table></div>` : nothing}
    </div>`;
  }

  row(task) {
    const title = task.title || task.name;
    return html`<tr data-task=${task.name}>
      <th scope="row"><a href=${`/tasks/${task.name}`} dir="auto">${title}</a>
        <span class="under">${task.title ? html`<code>${task.name}</code>` : nothing}
          ${task.paused ? html`<span class="badge" data-kind="warn">${t`paused`}</span>` : nothing}
          ${task.late ? html`<span class="badge" data-kind="warn">${t`${count.format(task.late)} late`}</span>` : nothing}
          ${task.running_since
            ? html`<span class="badge" data-kind="busy">${t`runs ${age(task.running_since, this.app.client.ahead)}`}</span>` : nothing}
          ${hasDraft(this.app.me.user, task.name) ? html`<span class="badge">${t`not saved`}</span>` : nothing}</span>
        <span class="small quiet">${t`${task.waiting} waiting · ${task.held} held · ${task.shelf} shelf`}</span>
        ${this.errors.has(task.name) ? html`<p class="error" role="alert">${this.errors.get(task.name)}</p>` : nothing}</th>
      <td>${task.query === null ? t`inbox` : t`query`}</td>
      ${[task.waiting, task.held, task.shelf].map((n) => html`<td class="number">${count.format(n)}</td>`)}
      <td class="number">${task.version}</td>
      <td class="act"><button type="button" class="pause" aria-disabled=${String(this.busy.has(task.name))}
          aria-label=${task.paused ? t`Resume ${title}` : t`Pause ${title}`}
        @click=${() => this.pause(task, !task.paused)}>${task.paused ? t`Resume` : t`Pause`}</button></td>
    </tr>`;
  }
}
