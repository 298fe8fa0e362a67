/** Absence: the dialog that enters one, and a banner as long as one is in force. */

import { html, nothing, render } from './lib/lit-html/lit-html.js';
import { t } from './lang.js';
import { monday, now, tomorrow } from './now.js';
import { clock } from './words.js';

const passed = (time) => time !== null && Date.parse(time) <= now();
const inForce = (a) => passed(a.from) && !passed(a.until);
const lasts = (a) => (a.until === null ? Infinity : Date.parse(a.until));

export class Absence {
  #app;
  #place = Object.assign(document.createElement('div'), { className: 'absent' });
  #shown;

  constructor(app) {
    this.#app = app;
    this.#place.setAttribute('role', 'status');
    document.getElementById('banner').after(this.#place);
    app.client.addEventListener('change', () => this.#show());
    app.client.addEventListener('absence', (e) => this.#told(e.detail));
    setInterval(() => this.#show(), 1000); // they begin and end by themselves, too
    this.#show();
  }

  #told({ created_by: entered, ended_by: ended, ended_at: end }) {
    const { user } = this.#app.me;
    if (!end && entered !== user) this.#app.say(t`${entered} has entered that you are away.`);
    if (ended && ended !== user) this.#app.say(t`${ended} has ended your absence.`);
  }

  #show() {
    const [first] = this.#all().sort((a, b) => lasts(b) - lasts(a));
    const shown = first && `${first.id} ${first.until}`;
    if (shown === this.#shown) return;
    this.#shown = shown;
    const { user } = this.#app.me;
    render(first ? html`<div class="banner">
      <p>${first.until ? t`You are away until ${clock(first.until)}, and get no work.` : t`You are away, and get no work.`}
        ${first.created_by === user ? nothing : t`${first.created_by} has entered it.`}</p>
      <button type="button" @click=${() => this.#back()}>${t`I’m back`}</button>
    </div>` : nothing, this.#place);
  }

  #all() { return [...this.#app.client.absences.values()].filter(inForce); }

  async #back() {
    try {
      for (const { id } of this.#all()) await this.#app.client.back(id);
      this.#app.say(t`You are back. Ask for work when you are ready.`);
      document.getElementById('view').focus();
    } catch (e) {
      this.#app.say(t`You are still away: ${e.message}.`);
    }
  }

  /** Asks until when, and who the substitute is. */
  async ask() {
    const { client, me, say } = this.#app;
    const ends = { tomorrow: tomorrow(), monday: monday() };
    const { askForm } = await import('./dialog.js');
    const entered = await askForm({
      title: t`Away`,
      body: html`<p class="soft">${t`Whoever is away gets no work, and what they wait for ends. What they hold goes where its task says. They can come back earlier.`}</p>
        ${me.role === 'manager' ? html`<div class="field"><label for="away-user">${t`Who`}</label>
          <input id="away-user" name="user" .value=${me.user} required maxlength="128" dir="auto" autocomplete="off"></div>` : nothing}
        <div class="field"><label for="away-until">${t`Until`}</label>
          <select id="away-until" name="until">
            <option value="tomorrow">${t`until ${clock(ends.tomorrow)}`}</option>
            ${+ends.monday === +ends.tomorrow ? nothing : html`<option value="monday">${t`until ${clock(ends.monday)}`}</option>`}
            <option value="">${t`until I’m back`}</option>
          </select></div>
        <div class="field"><label for="away-at">${t`or until`}</label><input id="away-at" name="at" type="datetime-local"></div>
        <div class="field"><label for="away-from">${t`From; empty for now`}</label><input id="away-from" name="from" type="datetime-local"></div>
        <div class="field"><label for="away-substitute">${t`Substitute`}</label>
          <input id="away-substitute" name="substitute" maxlength="128" dir="auto" autocomplete="off"></div>`,
      yes: t`Be away`,
      act: (form) => {
        const typed = (name) => form.get(name)?.trim().normalize() || undefined;
        const at = (name) => (form.get(name) ? new Date(form.get(name)).toISOString() : undefined);
        const user = typed('user');
        return client.away({
          ...(user && user !== me.user && { user }), from: at('from'), until: at('at') ?? ends[form.get('until')]?.toISOString(), substitute: typed('substitute'),
        });
      },
    });
    if (entered && !inForce(entered)) say(t`${entered.user} will be away from ${clock(entered.from)}.`);
    else if (entered && entered.user !== me.user) say(t`${entered.user} is away.`);
  }
}
