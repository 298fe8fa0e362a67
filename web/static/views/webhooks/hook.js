/** One web hook: a test, its secret, and its deliveries. */

import { html, nothing, render } from '../../lib/lit-html/lit-html.js';
import { repeat } from '../../lib/lit-html/directives/repeat.js';
import { plural, t } from '../../lang.js';
import { every, onceAFrame, when } from '../../parts.js';
import { ask, askForm } from '../../dialog.js';
import { Reader } from '../../reader.js';
import { focusOn } from '../account/focus.js';
import { Tasks, address, count, events, follow, forms, health, inParts, shown } from './parts.js';

const states = [
  { state: '', name: t`All##deliveries`, none: t`Nothing has been sent yet.` },
  { state: 'waiting', name: t`Waiting`, none: t`Nothing waits.` },
  { state: 'delivered', name: t`Delivered`, none: t`Nothing was delivered in the last seven days.` },
  { state: 'dead', name: t`Dead`, none: t`No event is dead.` },
];
const badges = {
  waiting: { kind: 'now', name: t`waiting` },
  delivered: { kind: 'ok', name: t`delivered` },
  dead: { kind: 'fifth', name: t`dead` },
};
const keeps = [
  { keep: '24h', name: t`for 24 hours` },
  { keep: '168h', name: t`for 7 days` },
  { keep: '0s', name: t`no more, because it has become known` },
];
const page = 50; // deliveries that are shown at first
const most = 1000; // that the server lists at once
const soon = 20_000; // ms after something was sent in which the page reads each second
const second = 1000;

export class Hook {
  #app; #calls; #id; #signal; #draw; #tasks; #hook; #deliveries;
  #state; // of the deliveries that are shown
  #limit = page;
  #until = 0; // it reads each second until then
  #test = null; // the last one: {text, kind}
  #secret = null; // {secret, former_until}
  #error = '';

  constructor(app, calls, id, { element, search, signal }) {
    this.#app = app;
    this.#calls = calls;
    this.#id = id;
    this.#signal = signal;
    this.#state = states.find(({ state }) => state === search.get('state'))?.state ?? '';
    this.#draw = onceAFrame(() => render(this.#template(), element), signal);
    this.#tasks = new Tasks(app, this.#draw, signal);
    this.#hook = new Reader(async () => (await calls.list()).find((hook) => hook.id === id) ?? null, this.#draw, { signal });
    this.#deliveries = new Reader(() => this.#read(), this.#draw, { signal });
    follow(app.client, () => this.#again(), signal);
    every(second, () => { if (Date.now() < this.#until) this.#again(); }, signal);
    this.#again();
    this.#draw();
  }

  #again() {
    this.#hook.again();
    this.#deliveries.again();
  }

  async #read() {
    const state = this.#state;
    return { state, ...await this.#calls.deliveries(this.#id, state, this.#limit) };
  }

  #choose(state) {
    this.#state = state;
    this.#limit = page;
    history.replaceState(null, '', address(this.#id, state));
    this.#deliveries.restart();
    this.#draw();
  }

  #older = () => {
    this.#limit = Math.min(most, 2 * this.#limit);
    this.#deliveries.restart();
  };

  /** Does something, and says what it says; an error is shown. */
  async #act(act) {
    this.#error = '';
    this.#draw();
    try {
      const line = await act();
      if (line) this.#app.say(line);
    } catch (e) {
      this.#error = e.message;
    }
    this.#draw();
    this.#again();
  }

  /** Sends a test, and waits for its first attempt. */
  #sendTest = () => {
    if (this.#test?.busy) return;
    this.#test = { busy: true, text: t`The test is being sent …` };
    this.#act(async () => {
      let ended = null;
      try {
        const id = await this.#calls.test(this.#id);
        this.#until = Date.now() + soon;
        while (!ended && Date.now() < this.#until && !this.#signal.aborted) {
          await new Promise((done) => { setTimeout(done, second / 2); });
          const { deliveries } = await this.#calls.deliveries(this.#id, '', page);
          ended = deliveries.find((d) => d.id === id && (d.state !== 'waiting' || d.error)) ?? null;
        }
        this.#test = outcome(ended);
      } finally {
        if (this.#test.busy) this.#test = null;
      }
    });
  };

  #rotate = async () => {
    const made = await askForm({
      title: t`New secret`,
      body: html`<p>${t`The receiver has to know the new secret. As long as the former one signs, too, it can check the signatures by either.`}</p>
        <div class="field"><label for="keep">${t`The former secret signs, too:`}</label>
          <select id="keep" name="keep">${keeps.map(({ keep, name }) => html`<option value=${keep}>${name}</option>`)}</select></div>`,
      yes: t`Make a new secret`,
      act: (form) => this.#calls.rotate(this.#id, form.get('keep')),
      signal: this.#signal,
    });
    if (!made) return;
    this.#secret = made;
    this.#hook.again();
    this.#draw();
    focusOn('the-secret');
  };

  async #delete(hook) {
    const yes = await ask({
      title: t`Delete this web hook?`,
      text: t`Nothing is sent to ${hook.url} any more. Its waiting and its dead events are removed.`,
      yes: t`Delete it`,
      danger: true,
    });
    if (!yes) return;
    await this.#act(async () => {
      await this.#calls.remove(this.#id);
      if (!this.#signal.aborted) this.#app.go('/webhooks'); // else the user has gone elsewhere meanwhile
      return t`The web hook is deleted.`;
    });
  }

  /** The button that was pressed goes away. */
  async #redrive(id) {
    await this.#act(async () => {
      const n = await this.#calls.redrive(this.#id, id && [id]);
      this.#until = Date.now() + soon;
      return n ? plural(n, '{0} event is sent again.', '{0} events are sent again.') : t`No event is dead any more.`;
    });
    focusOn('deliveries-title');
  }

  async #redriveAll() {
    const yes = await ask({
      title: t`Send all dead events again?`,
      text: t`They may come after later events of their items.`,
      yes: t`Send them again`,
    });
    if (yes) await this.#redrive();
  }

  #template() {
    const { value: hook, error } = this.#hook;
    return html`<div class="page account webhooks">
      <p class="soft small"><a href="/webhooks">${t`All web hooks`}</a></p>
      <h1 dir="auto">${hook ? inParts(hook.url) : t`Web hook`}</h1>
      <p class="error" role="alert" dir="auto">${this.#error || (error ? t`It can’t be read: ${error.message}` : '')}</p>
      ${hook === undefined && !error ? html`<p class="soft small">${t`Reading …`}</p>` : nothing}
      ${hook === null ? html`<p class="empty">${t`It is deleted, or not yours to see.`}</p>` : nothing}
      ${hook ? html`${this.#facts(hook)}${this.#secret ? this.#made() : nothing}${this.#list(hook)}` : nothing}
    </div>`;
  }

  #facts(hook) {
    const { text, kind, busy } = this.#test ?? {};
    return html`<section class="paper stack" aria-label=${t`About it`}>
      <dl class="facts">
        <div><dt>${t`Task`}</dt><dd dir="auto">${this.#tasks.title(hook.task)}</dd></div>
        ${forms[hook.form] ? html`<div><dt>${t`Receiver`}</dt><dd>${forms[hook.form]}</dd></div>` : nothing}
        <div><dt>${t`Events`}</dt><dd>${events(hook)}</dd></div>
        <div><dt>${t`State`}</dt><dd>${health(hook, this.#app.client.ahead)}</dd></div>
        <div><dt>${t`Made`}</dt><dd>${when(hook.created_at)} <span class="soft small">${t`by ${html`<bdi>${hook.created_by}</bdi>`}`}</span></dd></div>
        ${hook.former_until ? html`<div><dt>${t`Former secret`}</dt><dd>${t`signs until ${when(hook.former_until)}`}</dd></div>` : nothing}
      </dl>
      <div class="bar">
        <button type="button" class="primary" aria-disabled=${busy ? 'true' : nothing} @click=${this.#sendTest}>${t`Send a test`}</button>
        <button id="new-secret" type="button" @click=${this.#rotate}>${t`New secret …`}</button>
        <button type="button" @click=${() => this.#delete(hook)}>${t`Delete web hook …`}</button>
      </div>
      <p class="test" role="status" data-time=${kind ?? nothing} dir="auto">${text ?? ''}</p>
    </section>`;
  }

  #made() {
    const { secret, former_until: until } = this.#secret;
    const more = until ? t`Until ${when(until)} the former secret signs, too.` : t`The former secret signs no more.`;
    return shown(this.#app, secret, more, () => {
      this.#secret = null;
      this.#draw();
      focusOn('new-secret');
    });
  }

  #list(hook) {
    const { value, error } = this.#deliveries;
    const read = value?.state === this.#state ? value : null;
    const { none } = states.find(({ state }) => state === this.#state);
    return html`<section class="paper stack" aria-labelledby="deliveries-title">
      <div class="head">
        <h2 id="deliveries-title" tabindex="-1">${t`Deliveries`}</h2>
        <div class="pick" role="group" aria-label=${t`Which`}>${states.map(({ state, name }) => html`
          <button type="button" aria-pressed=${state === this.#state} @click=${() => this.#choose(state)}>${name}${
            hook[state] ? html` <span class="count">${count(hook[state])}</span>` : nothing}</button>`)}</div>
        ${hook.dead ? html`<button type="button" class="push" @click=${() => this.#redriveAll()}>${t`Send all dead ones again …`}</button>` : nothing}
      </div>
      ${this.#state === 'dead' ? html`<p class="soft small">${t`An event that could not be delivered within three days is dead. It is sent no more, unless you send it again.`}</p>` : nothing}
      <p class="error" role="alert" dir="auto">${error && hook ? t`They can’t be read: ${error.message}` : ''}</p>
      ${read || error ? nothing : html`<p class="soft small">${t`Reading …`}</p>`}
      ${read?.deliveries.length === 0 ? html`<p class="soft small">${none}</p>` : nothing}
      ${read?.deliveries.length ? html`<div class="scroll"><table class="stacks">
        <thead><tr><th scope="col">${t`Event`}</th><th scope="col">${t`Item`}</th><th scope="col">${t`Happened`}</th><th scope="col">${t`State`}</th>
          <th scope="col" class="num">${t`Attempts##deliveries`}</th><th scope="col">${t`Last answer`}</th><th scope="col"><span class="sr">${t`Send again`}</span></th></tr></thead>
        <tbody>${repeat(read.deliveries, ({ id }) => id, (d) => this.#row(hook, d))}</tbody></table></div>` : nothing}
      ${read?.next_cursor && this.#limit < most ? html`<p><button type="button" @click=${this.#older}>${t`Show older`}</button></p>` : nothing}
      ${read?.next_cursor && this.#limit === most ? html`<p class="soft small">${t`These are the newest thousand.`}</p>` : nothing}
    </section>`;
  }

  #row(hook, { id, type, item, state, attempts, created_at: at, next_at: next, ended_at: ended, status, error }) {
    const { kind, name } = badges[state];
    const waits = error && Date.parse(next) > Date.now() + this.#app.client.ahead;
    return html`<tr data-delivery=${id}>
      <th scope="row"><code>${type}</code></th>
      <td data-label=${t`Item`} class="of" dir="auto">${item && this.#app.me.role === 'manager' ? html`<a href=${itemAt(hook.task, item)}>${item}</a>` : item ?? '–'}</td>
      <td data-label=${t`Happened`}>${when(at)}</td>
      <td data-label=${t`State`}><span class="tag" data-time=${kind}>${name}</span> <span class="soft small">${
        state === 'waiting' ? waits ? t`next attempt ${when(next)}` : '' : when(ended)}</span></td>
      <td data-label=${t`Attempts##deliveries`} class="num">${attempts}</td>
      <td data-label=${t`Last answer`} class="answered" dir="auto">${error ?? status ?? '–'}</td>
      <td class="acts">${state === 'dead' ? html`<button type="button" aria-label=${item ? t`Send ${type} of ${item} again` : t`Send ${type} again`}
        @click=${() => this.#redrive(id)}>${t`Send again`}</button>` : nothing}</td>
    </tr>`;
  }
}

const itemAt = (task, item) => `/items?${new URLSearchParams({ ...(task && { task }), item })}`;

/** What became of a test; null: nothing yet. */
function outcome(d) {
  if (!d) return { text: t`The test has not been answered yet. The list of deliveries says how it ends.` };
  if (d.state === 'delivered') return { kind: 'ok', text: t`The test was delivered: the receiver answered ${String(d.status)}.` };
  return { kind: 'fifth', text: t`The test failed: ${d.error}. It is tried again later.` };
}
