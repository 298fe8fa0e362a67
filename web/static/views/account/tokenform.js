/** The form of a new token, one's own or a service's, and the token, which is shown this once. */

import { html, nothing } from '../../lib/lit-html/lit-html.js';
import { live } from '../../lib/lit-html/directives/live.js';
import { plural, t } from '../../lang.js';
import { byTitle } from '../../reader.js';
import { logInAt } from '../../session.js';
import { roleName } from '../../words.js';
import { focusOn } from './focus.js';
import { once } from './once.js';

const scopes = [
  { name: 'read', does: t`lists, event streams, the socket`, may: ['worker', 'agent', 'observer', 'manager'] },
  { name: 'work', does: t`get, claim, extend, complete and return work`, may: ['worker', 'agent', 'manager'] },
  { name: 'push', does: t`push items to inboxes`, may: ['agent', 'manager'] },
  { name: 'manage', does: t`all else that a manager may`, may: ['manager'] },
];
const days = [7, 30, 90, 180, 365];
const roles = ['agent', 'worker', 'observer', 'manager'];
const keyOf = (user, service) => `getwork.token.${service ? 'service.' : ''}${user}`;

export class TokenForm {
  /** Reports whether a form that was sent away for a newer log-in waits to be gone on with. */
  static waits(user, service = false) { return sessionStorage.getItem(keyOf(user, service)) !== null; }

  #app; #calls; #service; #on; #key;
  #typed = { label: '', scopes: ['read'], tasks: [], days: 90, user: '', role: 'agent', groups: '' };
  #tasks = null; // to choose from; null: they can't be listed, so names are typed
  #busy = false;
  #problem = null;
  #made = null;

  /** service: for a service. draw() draws; made() is called when there is one, done() when the form is to go. */
  constructor(app, calls, { service = false, draw, made, done }) {
    this.#app = app;
    this.#calls = calls;
    this.#service = service;
    this.#on = { draw, made, done };
    this.#key = keyOf(app.me.user, service);
    const kept = sessionStorage.getItem(this.#key);
    if (kept) Object.assign(this.#typed, JSON.parse(kept));
    if (app.me.role) {
      app.api.tasks().then((tasks) => {
        this.#tasks = tasks.sort(byTitle);
        draw();
      }, () => {});
    }
    focusOn(service ? 'token-user' : 'token-label');
  }

  get #role() { return this.#service ? this.#typed.role : this.#app.me.role; }

  get #offered() { return scopes.filter(({ may }) => may.includes(this.#role)); }

  #type(name, value) {
    this.#typed[name] = value;
    this.#on.draw();
  }

  #toggle(name, value, yes) { this.#type(name, yes ? [...this.#typed[name], value] : this.#typed[name].filter((v) => v !== value)); }

  #submit = async (e) => {
    e.preventDefault();
    if (this.#busy) return;
    this.#busy = true;
    this.#problem = null;
    this.#on.draw();
    const { label, scopes: chosen, tasks, days: n, user, role, groups } = this.#typed;
    const may = this.#offered.map(({ name }) => name);
    const list = (text) => text.split(',').map((v) => v.trim()).filter(Boolean);
    const only = Array.isArray(tasks) ? tasks : list(tasks);
    const groupsTyped = list(groups); // without any a service that is there already keeps its own
    try {
      this.#made = await this.#calls.createToken({
        label: label.trim(), scopes: chosen.filter((s) => may.includes(s)), expires_in: `${24 * n}h`,
        ...(only.length && { tasks: only }),
        ...(this.#service && { service: { user: user.trim(), role, ...(groupsTyped.length && { groups: groupsTyped }) } }),
      });
      sessionStorage.removeItem(this.#key);
      this.#on.made();
    } catch (problem) {
      this.#problem = problem;
      if (problem.logIn) sessionStorage.setItem(this.#key, JSON.stringify(this.#typed)); // it is there again after the log-in
    }
    this.#busy = false;
    this.#on.draw();
    focusOn(this.#made ? 'the-token' : 'token-again');
  };

  #cancel = () => {
    sessionStorage.removeItem(this.#key);
    this.#on.done();
  };

  template() { return this.#made ? this.#shown() : this.#form(); }

  #shown() {
    return html`<div class="made">
      <p role="status"><b>${t`Copy the token now: it is shown only this once.`}</b></p>
      ${once(this.#app, 'the-token', t`The token`, this.#made.token)}
      <p class="soft small">${t`Keep it in a file that only its program can read, or in a store of secrets. Whoever has it can use it.`}</p>
      <button type="button" @click=${() => this.#on.done()}>${t`Done`}</button>
    </div>`;
  }

  #form() {
    const { label, days: chosen } = this.#typed;
    const { message, logIn } = this.#problem ?? {};
    return html`<form class="token-form" @submit=${this.#submit} aria-label=${this.#service ? t`New service token` : t`New token`}>
      ${this.#service ? this.#whose() : nothing}
      <div class="field"><label for="token-label">${t`What it is for`}</label>
        <input id="token-label" required maxlength="100" autocomplete="off" placeholder=${t`nightly report`} .value=${live(label)} @input=${(e) => this.#type('label', e.target.value)}></div>
      <div class="field"><label for="token-days">${t`Expires after`}</label>
        <select id="token-days" @change=${(e) => this.#type('days', Number(e.target.value))}>${days.map((n) =>
          html`<option value=${n} ?selected=${n === chosen}>${plural(n, '{0} day', '{0} days')}</option>`)}</select></div>
      <fieldset class="wide"><legend>${t`It may`}</legend>${this.#offered.map(({ name, does }) => html`<label class="check">
        <input type="checkbox" .checked=${live(this.#typed.scopes.includes(name))} @change=${(e) => this.#toggle('scopes', name, e.target.checked)}>
        <span><b translate="no">${name}</b> <span class="soft small">${does}</span></span></label>`)}</fieldset>
      ${this.#forTasks()}
      <p class="error wide" role="alert" dir="auto">${message ? `${message[0].toUpperCase()}${message.slice(1)}.` : ''}</p>
      <div class="bar wide">
        ${logIn ? html`<a id="token-again" class="button primary" href=${logInAt(logIn)}>${t`Log in again, and come back here`}</a>` : nothing}
        <button type="submit" class=${logIn ? '' : 'primary'} aria-disabled=${this.#busy ? 'true' : nothing}>${this.#busy ? t`One moment …` : t`Make the token`}</button>
        <button type="button" @click=${this.#cancel}>${t`Cancel`}</button>
      </div>
    </form>`;
  }

  #whose() {
    const { user, role, groups } = this.#typed;
    return html`<div class="field"><label for="token-user">${t`Name of the service`}</label>
        <input id="token-user" required maxlength="128" autocomplete="off" placeholder=${t`resizer`} .value=${live(user)} @input=${(e) => this.#type('user', e.target.value)}></div>
      <div class="field"><label for="token-role">${t`Role`}</label>
        <select id="token-role" @change=${(e) => this.#type('role', e.target.value)}>${roles.filter((r) => r !== 'manager' || this.#app.me.role === r).map((r) => html`<option value=${r} ?selected=${r === role}>${roleName(r)}</option>`)}</select></div>
      <div class="field"><label for="token-groups">${t`Groups`}</label>
        <input id="token-groups" aria-describedby="token-groups-hint" autocomplete="off" .value=${live(groups)} @input=${(e) => this.#type('groups', e.target.value)}>
        <p id="token-groups-hint" class="soft small">${t`Of a new service, separated by commas; empty for none.`}</p></div>`;
  }

  #forTasks() {
    const { tasks } = this.#typed;
    if (!this.#tasks) {
      const text = Array.isArray(tasks) ? tasks.join(', ') : tasks;
      return html`<div class="field"><label for="token-tasks">${t`Only for the tasks`}</label>
        <input id="token-tasks" aria-describedby="token-tasks-hint" autocomplete="off" .value=${live(text)} @input=${(e) => this.#type('tasks', e.target.value)}>
        <p id="token-tasks-hint" class="soft small">${t`Names, separated by commas; empty for all tasks.`}</p></div>`;
    }
    const chosen = Array.isArray(tasks) ? tasks : [];
    return html`<details class="wide" ?open=${chosen.length > 0}><summary>${chosen.length ? t`Only for ${chosen.join(', ')}` : t`For all tasks`}</summary>
      <fieldset class="tasks-of"><legend class="sr">${t`Only for the tasks`}</legend>${this.#tasks.map(({ name, title }) => html`<label class="check">
        <input type="checkbox" .checked=${live(chosen.includes(name))} @change=${(e) => this.#type('tasks', e.target.checked ? [...chosen, name] : chosen.filter((t) => t !== name))}>
        <span dir="auto">${title || name}</span></label>`)}</fieldset></details>`;
  }
}
