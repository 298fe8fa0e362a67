/** The form of a new web hook, and then its secret. */

import { html, nothing } from '../../lib/lit-html/lit-html.js';
import { live } from '../../lib/lit-html/directives/live.js';
import { t } from '../../lang.js';
import { focusOn } from '../account/focus.js';
import { forms, kinds, shown } from './parts.js';

const anyTask = '*'; // no task is called so
const says = {
  'work.assigned': t`somebody got an item`,
  'work.closed': t`an item was let go of: completed, returned, failed, never again or reassigned`,
  'work.expired': t`a lease ran out`,
  'run.failed': t`a task’s query failed`,
  'alert.begun': t`something is wrong with a task: its query fails, people wait too long, items are late or too old`,
  'alert.ended': t`that is over`,
};

/** The server's message, which may begin with a field's name. */
const sentence = (message) => `${message.replace(/^url\b/, 'URL').replace(/^./u, (first) => first.toUpperCase())}.`;

export class HookForm {
  #app; #calls; #tasks; #on;
  #typed = { url: '', task: '', form: 'getwork', events: kinds };
  #busy = false;
  #problem = null;
  #made = null;

  /**
   * tasks: Tasks; task: the name of the one to begin with. draw() draws; made() is called when there is a web hook; done(id) when the
   * form is to go, with the new one's id.
   */
  constructor(app, calls, tasks, { task, draw, made, done }) {
    this.#app = app;
    this.#calls = calls;
    this.#tasks = tasks;
    this.#on = { draw, made, done };
    this.#typed.task = this.#own ? task : anyTask;
    focusOn('hook-url');
  }

  get #own() { return this.#app.me.role === 'manager'; }

  get #global() { return this.#app.me.admin || this.#app.me.by === 'dev'; }

  #type(name, value) {
    this.#typed[name] = value;
    this.#on.draw();
  }

  #choose(form) {
    this.#type('form', form);
    this.#type('events', form === 'getwork' ? kinds : kinds.filter((kind) => kind.startsWith('alert.'))); // a channel reads what somebody should see
  }

  #submit = async (e) => {
    e.preventDefault();
    if (this.#busy) return;
    this.#busy = true;
    this.#problem = null;
    this.#on.draw();
    const { url, task, form, events } = this.#typed;
    try {
      this.#made = await this.#calls.create({ url: url.trim(), task: task === anyTask ? null : task, events, ...form === 'getwork' ? {} : { form } });
      this.#on.made();
    } catch (problem) {
      this.#problem = problem;
    }
    this.#busy = false;
    this.#on.draw();
    if (this.#made) focusOn('the-secret');
  };

  template() {
    return this.#made
      ? shown(this.#app, this.#made.secret, t`Afterwards send a test.`, () => this.#on.done(this.#made.id))
      : html`<section class="paper stack" aria-labelledby="new-title"><h2 id="new-title">${t`New web hook`}</h2>${this.#form()}</section>`;
  }

  #form() {
    const { url, form: chosen, events } = this.#typed;
    const { message, errors = [] } = this.#problem ?? {};
    const wrong = (name) => (errors.some(({ field }) => field === name) ? 'true' : nothing);
    return html`<form class="token-form" @submit=${this.#submit}>
      <div class="field wide"><label for="hook-url">${t`URL`}</label>
        <input id="hook-url" type="url" required maxlength="2000" autocomplete="off" spellcheck="false" placeholder=${t`https://receiver.example/getwork`}
          aria-invalid=${wrong('url')} aria-describedby="hook-error" .value=${live(url)} @input=${(e) => this.#type('url', e.target.value)}></div>
      ${this.#whose(wrong('task'))}
      <div class="field"><label for="hook-form">${t`Receiver`}</label>
        <select id="hook-form" @change=${(e) => this.#choose(e.target.value)}>
          ${Object.entries(forms).map(([form, text]) => html`<option value=${form} .selected=${live(form === chosen)}>${text}</option>`)}
        </select></div>
      <fieldset class="wide"><legend>${t`Events`}</legend>${kinds.map((kind) => html`<label class="check">
        <input type="checkbox" .checked=${live(events.includes(kind))}
          @change=${(e) => this.#type('events', kinds.filter((k) => (k === kind ? e.target.checked : events.includes(k))))}>
        <span><code>${kind}</code> <span class="soft small">${says[kind]}</span></span></label>`)}</fieldset>
      <p id="hook-error" class="error wide" role="alert" dir="auto">${message ? sentence(message) : ''}</p>
      <div class="bar wide">
        <button type="submit" class="primary" aria-disabled=${this.#busy ? 'true' : nothing}>${this.#busy ? t`One moment …` : t`Make the web hook`}</button>
        <button type="button" @click=${() => this.#on.done()}>${t`Cancel`}</button>
      </div>
    </form>`;
  }

  #whose(wrong) {
    if (!this.#own) return html`<div class="field"><span class="label">${t`Task`}</span><p>${t`All tasks`}</p></div>`;
    const { task } = this.#typed;
    return html`<div class="field"><label for="hook-task">${t`Task`}</label>
      <select id="hook-task" required aria-invalid=${wrong} @change=${(e) => this.#type('task', e.target.value)}>
        <option value="" .selected=${live(!task)}>${t`Choose …`}</option>
        ${this.#global ? html`<option value=${anyTask} .selected=${live(task === anyTask)}>${t`All tasks`}</option>` : nothing}
        ${(this.#tasks.all ?? []).map(({ name, title }) => html`<option value=${name} .selected=${live(name === task)}>${title || name}</option>`)}
      </select></div>`;
  }
}
