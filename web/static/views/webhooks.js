/**
 * Web hooks: URLs that are told of events. Managers have those of tasks, administrators those of all tasks. The address has the one that
 * is shown (hook), and which of its deliveries are (state); or the task whose web hooks are listed (task; all by default).
 */

import { html, nothing, render } from '../lib/lit-html/lit-html.js';
import { repeat } from '../lib/lit-html/directives/repeat.js';
import { t } from '../lang.js';
import { onceAFrame } from '../parts.js';
import { Reader } from '../reader.js';
import { focusOn } from './account/focus.js';
import { calls } from './webhooks/calls.js';
import { HookForm } from './webhooks/form.js';
import { Hook } from './webhooks/hook.js';
import { Tasks, address, count, events, follow, health, inParts } from './webhooks/parts.js';

export function open(app, place) {
  const id = place.search.get('hook');
  if (id) new Hook(app, calls(app.api), id, place);
  else new Hooks(app, place);
}

class Hooks {
  #app; #calls; #task; #draw; #reader; #tasks;
  #form = null;

  constructor(app, { element, search, signal }) {
    this.#app = app;
    this.#task = search.get('task') ?? '';
    this.#calls = calls(app.api);
    this.#draw = onceAFrame(() => render(this.#template(), element), signal);
    this.#reader = new Reader(() => this.#read(), this.#draw, { signal });
    this.#tasks = new Tasks(app, this.#draw, signal);
    follow(app.client, () => this.#reader.again(), signal);
    this.#reader.again();
    this.#draw();
  }

  /** Web hooks of all tasks are told of each task. */
  async #read() {
    const all = await this.#calls.list();
    return this.#task ? all.filter(({ task }) => task === null || task === this.#task) : all;
  }

  #new = () => {
    this.#form = new HookForm(this.#app, this.#calls, this.#tasks, {
      task: this.#task,
      draw: this.#draw,
      made: () => this.#reader.again(),
      done: (id) => {
        this.#form = null;
        if (id) {
          this.#app.go(address(id));
          return;
        }
        this.#draw();
        focusOn('new-hook');
      },
    });
    this.#draw();
  };

  #template() {
    const { value: all, error } = this.#reader;
    return html`<div class="page account webhooks">
      <div class="bar">
        <h1>${t`Web hooks`}</h1>
        ${this.#form ? nothing : html`<button id="new-hook" type="button" class="push" @click=${this.#new}>${t`New web hook`}</button>`}
      </div>
      <p class="soft small">${t`A web hook tells another program what happens: it posts events to its URL.`} <a href="/docs#WebhookEvent">${t`The shape of an event`}</a></p>
      ${this.#task ? html`<p dir="auto">${t`Only those that are told of ${html`<b>${this.#tasks.title(this.#task)}</b>`}.`} <a href="/webhooks">${t`All web hooks`}</a></p>` : nothing}
      ${this.#form ? this.#form.template() : nothing}
      <p class="error" role="alert" dir="auto">${error ? t`They can’t be read: ${error.message}` : ''}</p>
      ${all || error ? nothing : html`<p class="soft small">${t`Reading …`}</p>`}
      ${all?.length === 0 && !this.#form ? html`<p class="empty">${this.#task ? t`None is told of this task.` : t`There are no web hooks yet.`}</p>` : nothing}
      ${all?.length ? html`<section class="paper stack" aria-label=${t`Web hooks`}><div class="scroll"><table class="stacks">
        <thead><tr><th scope="col">${t`URL`}</th><th scope="col">${t`Task`}</th><th scope="col">${t`Events`}</th><th scope="col">${t`State`}</th>
          <th scope="col" class="num">${t`Waiting`}</th><th scope="col" class="num">${t`Dead`}</th></tr></thead>
        <tbody>${repeat(all, ({ id }) => id, (hook) => this.#row(hook))}</tbody></table></div></section>` : nothing}
    </div>`;
  }

  #row(hook) {
    const { id, url, task, waiting, dead } = hook;
    return html`<tr data-hook=${id}>
      <th scope="row"><a href=${address(id)} dir="auto">${inParts(url)}</a></th>
      <td data-label=${t`Task`} dir="auto">${this.#tasks.title(task)}</td>
      <td data-label=${t`Events`}>${events(hook)}</td>
      <td data-label=${t`State`} class="health">${health(hook, this.#app.client.ahead)}</td>
      <td data-label=${t`Waiting`} class="num">${waiting ? count(waiting) : html`<span class="none">–</span>`}</td>
      <td data-label=${t`Dead`} class="num">${dead ? html`<a href=${address(id, 'dead')}>${count(dead)}</a>` : html`<span class="none">–</span>`}</td>
    </tr>`;
  }
}
