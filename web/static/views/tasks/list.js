/** All tasks at a glance: what is left, who waits, what is held, and pause. */

import { html, nothing, render } from '../../lib/lit-html/lit-html.js';
import { repeat } from '../../lib/lit-html/directives/repeat.js';
import { locale, t } from '../../lang.js';
import { age, every, icon, onceAFrame } from '../../parts.js';
import { Reader, byTitle, keepListed, taskList } from '../../reader.js';
import { clock } from '../../words.js';
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
    const said = { // columns that the server may not have yet
      done: rows.some((task) => task.done_today !== undefined),
      through: rows.some((task) => task.through_at),
    };
    const head = [[t`Left`], [t`Waiting`, 'wide'], [t`Held`, 'wide'], [t`Shelf`, 'wide'], ...(said.done ? [[t`Done today##tasks`, 'wide']] : [])];
    return html`<div class="page tasks">
      <div class="bar">
        <h1>${t`Tasks`}</h1>${rows.length ? html`<span class="soft">${count.format(rows.length)}</span>` : nothing}
        <a class="button primary push" href="/tasks?new=1">${t`New task`}<kbd aria-hidden="true">N</kbd></a>
      </div>
      ${error && !rows.length ? html`<p class="error" role="alert">${t`The tasks can’t be shown now: ${error.message}.`}</p>` : nothing}
      ${hasDraft(this.app.me.user, '') ? html`<p class="notice">${t`You began a task and have not created it.`}
        <a href="/tasks?new=1">${t`Go on with it`}</a></p>` : nothing}
      ${value && !error && rows.length === 0 ? html`<div class="empty"><p>${t`There are no tasks yet.`}</p>
        <p><a href="/tasks?new=1">${t`Create the first one`}</a></p></div>` : nothing}
      ${rows.length ? html`<section class="paper"><div class="scroll" tabindex="0" role="region" aria-label=${t`Tasks`}><table class="task-list">
        <thead><tr><th scope="col">${t`Task`}</th>
          ${head.map(([title, wide]) => html`<th scope="col" class="num ${wide ?? ''}">${title}</th>`)}
          ${said.through ? html`<th scope="col" class="wide">${t`Through by`}</th>` : nothing}
          <th scope="col" class="num wide">${t`Version`}</th><th scope="col"><span class="sr">${t`Pause`}</span></th></tr></thead>
        <tbody>${repeat(rows, (task) => task.name, (task) => this.row(task, said))}</tbody>
      </table></div></section>` : nothing}
    </div>`;
  }

  row(task, said) {
    const title = task.title || task.name;
    const { backlog } = task;
    const left = task.query === null ? backlog?.free ?? task.shelf : backlog?.free;
    return html`<tr data-task=${task.name}>
      <th scope="row"><a href=${`/tasks/${task.name}`} dir="auto">${title}</a>
        ${task.failures ? html`<span class="tag loud" data-time="fifth" title=${task.last_error ?? nothing}>${icon('circle-alert')}${t`failing`}</span>` : nothing}
        ${task.paused ? html`<span class="tag" data-time="half">${t`paused`}</span>` : nothing}
        ${task.late ? html`<span class="tag" data-time="fifth">${t`${count.format(task.late)} late`}</span>` : nothing}
        ${task.running_since
          ? html`<span class="tag" data-time="now">${t`runs ${age(task.running_since, this.app.client.ahead)}`}</span>` : nothing}
        ${hasDraft(this.app.me.user, task.name) ? html`<span class="tag" data-time="none">${t`not saved`}</span>` : nothing}
        <span class="under soft small">${task.title ? html`<code>${task.name}</code>` : nothing} ${task.query === null ? t`inbox` : nothing}
          <span class="narrow">${t`${task.waiting} waiting · ${task.held} held · ${task.shelf} shelf`}</span></span>
        ${this.errors.has(task.name) ? html`<p class="error" role="alert">${this.errors.get(task.name)}</p>` : nothing}</th>
      <td class="num">${left === undefined ? html`<span class="none" title=${t`Its query has not run yet.`}>–</span>` : counted(left)}</td>
      ${[task.waiting, task.held, task.shelf].map((n) => html`<td class="num wide">${counted(n)}</td>`)}
      ${said.done ? html`<td class="num wide">${counted(task.done_today)}</td>` : nothing}
      ${said.through ? html`<td class="wide">${task.through_at ? clock(task.through_at) : html`<span class="none">–</span>`}</td>` : nothing}
      <td class="num wide soft">${task.version}</td>
      <td class="act"><button type="button" class="pause" aria-disabled=${String(this.busy.has(task.name))}
          aria-label=${task.paused ? t`Resume ${title}` : t`Pause ${title}`}
        @click=${() => this.pause(task, !task.paused)}>${task.paused ? html`${icon('play')}${t`Resume`}` : html`${icon('pause')}${t`Pause`}`}</button></td>
    </tr>`;
  }
}

const counted = (n) => (n ? count.format(n) : html`<span class="none">–</span>`);
