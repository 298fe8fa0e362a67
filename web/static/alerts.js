/** What goes wrong with tasks, under the top of every manager's and observer's page. */

import { html, nothing, render } from './lib/lit-html/lit-html.js';
import { repeat } from './lib/lit-html/directives/repeat.js';
import { plural, t } from './lang.js';
import { every, icon, span } from './parts.js';
import { Reader } from './reader.js';
import { now } from './now.js';
import { clock } from './words.js';

const patience = 400; // ms for which a view waits for the first answer, so that it doesn't move a moment later
const few = 3; // are shown at once: the page is about something else

export class Alerts extends EventTarget {
  /** Settles when it is known what to show at first, or after a moment. */
  first;

  #app; #reader;
  #place = document.createElement('aside');
  #titles = new Map(); // of tasks by their names
  #unfolded = false;

  constructor(app) {
    super();
    this.#app = app;
    this.#place.setAttribute('aria-label', t`Alerts`);
    this.#place.className = 'alerts-of';
    this.#place.hidden = true;
    document.getElementById('view').before(this.#place);
    const { signal } = new AbortController(); // as long as the page
    this.#reader = new Reader(() => this.#read(), () => this.#changed(), { least: 10_000, signal });
    for (const type of ['task', 'tasks', 'reread']) app.client.addEventListener(type, () => this.#reader.again());
    every(30_000, () => this.#reader.again(), signal); // time alone makes some
    this.first = Promise.race([this.#reader.again(), new Promise((done) => setTimeout(done, patience))]);
  }

  /** A task's alert of a kind, or undefined. */
  of(task, kind) { return this.#reader.value?.find((alert) => alert.task === task && alert.kind === kind); }

  async #read() {
    const answer = await (this.#app.api.alerts?.() ?? Promise.resolve([])).catch((e) => {
      if (e.status === 404) return []; // a node of an older version
      throw e;
    });
    const alerts = answer.alerts ?? answer;
    if (alerts.some(({ task }) => !this.#titles.has(task))) {
      this.#titles = new Map((await this.#app.api.tasks()).map((task) => [task.name, task.title || task.name]));
    }
    return alerts;
  }

  /** What can't be read is left as it was: the page says elsewhere that the server is away. */
  #changed() {
    if (!this.#reader.value) return;
    this.#draw();
    this.dispatchEvent(new Event('change'));
  }

  #draw() {
    const alerts = this.#reader.value;
    this.#place.hidden = !alerts.length;
    const shown = this.#unfolded || alerts.length === few + 1 ? alerts : alerts.slice(0, few);
    render(html`<ul class="alerts">${repeat(shown, ({ kind, task }) => `${kind} ${task}`, (alert) => this.#alert(alert))}
      ${shown.length < alerts.length ? html`<li data-time="half"><span></span><span>${plural(alerts.length - shown.length, '{0} more alert', '{0} more alerts')}</span>
        <button type="button" class="plain" @click=${() => this.#unfold()}>${t`Show all`}</button></li>` : nothing}</ul>`, this.#place);
  }

  #unfold() {
    this.#unfolded = true;
    this.#draw();
    this.#place.querySelector('a').focus();
  }

  #alert({ kind, task, since, count, detail }) {
    const title = html`<b dir="auto">${this.#titles.get(task) ?? task}</b>`;
    const says = {
      failing: () => (detail ? t`${title} has failed since ${clock(since)}: ${detail}` : t`${title} has failed since ${clock(since)}`),
      unserved: () => html`${title}: ${count ? plural(count, '{0} person waits, and nobody has been served for {1}', '{0} people wait, and nobody has been served for {1}', span(now() - Date.parse(since)))
        : t`nobody has been served for ${span(now() - Date.parse(since))}`}`,
      late: () => html`${title}: ${plural(count ?? 1, '{0} item is past its deadline, since {1}', '{0} items are past their deadline, the first since {1}', clock(since))}`,
      backlog: () => html`${title}: ${t`the oldest item has been there since ${clock(since)}`}`,
    }[kind];
    if (!says) return nothing; // of a newer server
    const manages = this.#app.me.role === 'manager';
    const [href, act] = kind === 'failing' && manages ? [`/tasks/${encodeURIComponent(task)}`, t`Look at the query`]
      : [`/floor?task=${encodeURIComponent(task)}`, { failing: t`See the task`, unserved: t`See who waits`, late: t`See who holds them`, backlog: t`See the task` }[kind]];
    return html`<li data-time=${kind === 'failing' || kind === 'late' ? 'fifth' : 'half'} data-alert=${kind}>${icon(kind === 'late' ? 'alarm-clock' : 'octagon-alert')}<span dir="auto">${says()}</span><a href=${href}>${act}</a></li>`;
  }
}
