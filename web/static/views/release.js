/** Takes back much work at once: from a user, of a task, or of both. */

import { html, nothing } from '../lib/lit-html/lit-html.js';
import { repeat } from '../lib/lit-html/directives/repeat.js';
import { plural, t } from '../lang.js';
import { when } from '../parts.js';
import { newDialog } from '../dialog.js';
import { byTitle } from '../reader.js';

const rows = 8; // of what is to be released are shown

/**
 * Shows the held work of a user, a task, or a user in a task, and releases exactly that after a confirmation, with what the user waits
 * for. The promise has the number of released items and requests, or 0. signal closes the dialog when the view is left.
 */
export function releaseDialog(app, { user = '', task = '', signal } = {}) {
  return new Release(app, user, task, signal).released;
}

class Release {
  released; // a promise of their number

  #app; #user; #task; #dialog;
  #tasks = null; // to choose from, once they are read
  #found = null; // {count, token, works} of what is chosen
  #round = 0; // of counting; an answer to a former one is too late
  #timer = null;
  #busy = false;
  #warning = '';
  #error = '';

  constructor(app, user, task, signal) {
    this.#app = app;
    this.#user = user;
    this.#task = task;
    this.#dialog = newDialog('release', signal);
    this.released = this.#dialog.closed.then((count) => {
      clearTimeout(this.#timer);
      return count ?? 0;
    });
    this.#draw();
    this.#loadTasks();
    this.#count();
  }

  async #loadTasks() {
    this.#tasks = await this.#app.api.tasks().then((tasks) => tasks.sort(byTitle)).catch(() => null); // then a task can't be chosen, but the one asked for stays
    this.#draw();
  }

  get #any() { return Boolean(this.#found?.count || this.#found?.requests); }

  get #what() { return { user: this.#user || undefined, task: this.#task || undefined }; }

  /** The choice has changed, so the count is outdated. */
  #choose(change, wait) {
    change();
    this.#found = null;
    this.#warning = '';
    this.#round++;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#count(), wait);
    this.#draw();
  }

  async #count() {
    clearTimeout(this.#timer);
    const round = ++this.#round;
    this.#found = null;
    this.#error = '';
    if (!this.#user && !this.#task) return this.#draw();
    this.#draw();
    const { api } = this.#app;
    try {
      const what = this.#what;
      const { count, requests, token } = await api.release({ ...what, dry_run: true });
      const { work } = await api.work({ ...what, state: 'held', limit: rows }); // read after the count: if the set differs, the token is refused
      if (round === this.#round) this.#found = { count, requests, token, works: work };
    } catch (e) {
      if (round === this.#round) this.#error = t`It can’t be counted: ${e.message}.`;
    }
    this.#draw();
  }

  async #release() {
    const { count, token } = this.#found ?? {};
    if (!this.#any || this.#busy) return;
    this.#busy = true;
    this.#warning = this.#error = '';
    this.#draw();
    try {
      const done = await this.#app.api.release({ ...this.#what, token });
      this.#app.say(done.requests ? t`Released: ${items(done.count)}. Cancelled: ${waiting(done.requests)}.` : t`Released: ${items(done.count)}.`);
      this.#dialog.close(done.count + done.requests);
    } catch (e) {
      this.#busy = false;
      if (e.status !== 409) {
        this.#error = e.status >= 500 ? t`Count again to see what was released: ${e.message}.` : e.status ? t`Nothing was released: ${e.message}.` : t`The server can’t be reached. Count again to see whether it was released.`;
        return this.#draw();
      }
      await this.#count();
      this.#warning = this.#found ? t`Nothing was released: what is held has changed since it was counted. It was ${count}, and is ${this.#found.count} now.`
        : t`Nothing was released: what is held has changed since it was counted. It was ${count}.`;
      this.#draw();
    }
  }

  #draw() {
    this.#dialog.draw(html`<form class="release-form" @submit=${(e) => { e.preventDefault(); this.#count(); }}>
      <h2 id="dialog-title">${t`Release work`}</h2>
      <p class="soft">${t`Released items go back to the queue at once. Anybody can get them, also their present holders if they ask again, and no attempt is used up. People see them leave their pipelines; a note that they have typed and not sent stays on their screen.`}</p>
      <div class="which">
        <div class="field">
          <label for="release-user">${t`Held by`}</label>
          <input id="release-user" .value=${this.#user} placeholder=${t`anybody`} dir="auto" maxlength="128" autocomplete="off"
            @input=${(e) => this.#choose(() => { this.#user = e.target.value; }, 400)}>
        </div>
        <div class="field">
          <label for="release-task">${t`Of task`}</label>
          <select id="release-task" @change=${(e) => this.#choose(() => { this.#task = e.target.value; }, 0)}>${this.#options()}</select>
        </div>
      </div>
      <p class="found" role="status" dir="auto">${this.#says()}</p>
      ${this.#found?.count ? this.#table() : nothing}
      <p class="warning" role="alert">${this.#warning}</p>
      <p class="error" role="alert" dir="auto">${this.#error}</p>
      <div class="bar">
        ${this.#error ? html`<button type="button" @click=${() => this.#count()}>${t`Count again`}</button>` : nothing}
        <button type="button" @click=${() => this.#dialog.close()}>${t`Cancel`}</button>
        <button type="button" id="release" class="danger" aria-disabled=${this.#any && !this.#busy ? nothing : 'true'} @click=${() => this.#release()}>
          ${this.#button()}</button>
      </div>
    </form>`);
  }

  #options() {
    const tasks = this.#tasks ?? [];
    const known = tasks.some((task) => task.name === this.#task);
    return html`
      <option value="" ?selected=${!this.#task}>${t`all tasks`}</option>
      ${known || !this.#task ? nothing : html`<option value=${this.#task} selected>${this.#task}</option>`}
      ${repeat(tasks, (task) => task.name, (task) => html`<option value=${task.name} ?selected=${task.name === this.#task}>${task.title || task.name}</option>`)}`;
  }

  #says() {
    if (!this.#user && !this.#task) return t`Say whose work it is, or of which task, or both.`;
    if (this.#error) return '';
    if (!this.#found) return t`Counting …`;
    const { count, requests } = this.#found;
    if (!this.#any) return t`Nothing of that is held, so there is nothing to release.`;
    const held = this.#user ? plural(count, '{0} item is held by {1}.', '{0} items are held by {1}.', this.#user)
      : plural(count, '{0} item is held.', '{0} items are held.');
    return requests ? t`${held} Cancelled, too: ${waiting(requests)}.` : held;
  }

  #button() {
    if (this.#busy) return t`Releasing …`;
    return this.#any ? t`Release ${items(this.#found.count)}` : t`Release`;
  }

  #table() {
    const { count, works } = this.#found;
    const columns = [[t`Item`, (w) => w.item], !this.#task && [t`Task`, (w) => w.task], !this.#user && [t`Held by`, (w) => w.user]].filter(Boolean);
    return html`<div class="scroll" tabindex="0" role="region" aria-label=${t`Work to be released`}>
      <table>
        <thead><tr>${columns.map(([title]) => html`<th scope="col">${title}</th>`)}<th scope="col">${t`Since`}</th></tr></thead>
        <tbody>${repeat(works, (w) => w.id, (w) => html`<tr>
          ${columns.map(([, of]) => html`<td dir="auto">${of(w)}</td>`)}<td>${when(w.assigned_at)}</td>
        </tr>`)}</tbody>
      </table>
      ${count > works.length ? html`<p class="soft">${t`… and ${count - works.length} more, longer held.`}</p>` : nothing}
    </div>`;
  }
}

const items = (n) => plural(n, '{0} item', '{0} items');
const waiting = (n) => plural(n, '{0} request that waits', '{0} requests that wait');
