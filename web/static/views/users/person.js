/** One user as administrators see them: who they are, what they have, and keeping them out. */

import { html, nothing, render } from '../../lib/lit-html/lit-html.js';
import { plural, t } from '../../lang.js';
import { face, onDemand, onceAFrame, when } from '../../parts.js';
import { askForm } from '../../dialog.js';
import { Reader } from '../../reader.js';
import { roleName } from '../../words.js';
import { Sessions } from '../account/sessions.js';
import { Tokens } from '../account/tokens.js';

/** What sets a user apart. */
export const badges = ({ kind, admin, blocked }) => html`${kind === 'service' ? html`<span class="tag" data-time="none">${t`service`}</span> ` : nothing}${
  admin ? html`<span class="tag" data-time="now">${t`administrator`}</span> ` : nothing}${blocked ? html`<span class="tag" data-time="fifth">${t`blocked`}</span>` : nothing}`;

export class Person {
  #app; #calls; #name; #signal; #draw; #reader; #sessions; #tokens;
  #error = '';

  constructor(app, calls, name, { element, signal }) {
    this.#app = app;
    this.#calls = calls;
    this.#name = name;
    this.#signal = signal;
    this.#draw = onceAFrame(() => render(this.#template(), element), signal);
    this.#reader = new Reader(async () => (await calls.users({ user: name })).users[0] ?? null, this.#draw, { signal });
    const with_ = { user: name, draw: this.#draw, changed: () => this.#reader.again(), signal };
    this.#sessions = new Sessions(app, calls, with_);
    this.#tokens = new Tokens(app, calls, with_);
    this.#reader.again();
    this.#draw();
  }

  #template() {
    const { value: user, error } = this.#reader;
    return html`<div class="page account">
      <p class="soft small"><a href="/users">${t`All users`}</a></p>
      <div class="bar"><h1 class="who" dir="auto">${face(this.#name)}${this.#name}</h1> ${user ? badges(user) : nothing}</div>
      <p class="error" role="alert" dir="auto">${this.#error || (error ? t`It can’t be read: ${error.message}` : '')}</p>
      ${user === null ? html`<p class="empty">${t`Nobody of this name has come in.`}</p>` : nothing}
      ${user ? html`${this.#facts(user)}${user.kind === 'person' || user.sessions ? this.#sessions.template() : nothing}${this.#tokens.template()}` : nothing}
    </div>`;
  }

  #facts(user) {
    const service = user.kind === 'service';
    return html`<section class="paper stack" aria-label=${t`Facts`}>
      <dl class="facts">
        <div><dt>${t`Role`}</dt><dd>${user.role ? roleName(user.role) : t`none`}</dd></div>
        ${user.groups.length ? html`<div><dt>${t`Groups`}</dt><dd dir="auto">${user.groups.join(', ')}</dd></div>` : nothing}
        <div><dt>${t`Last seen`}</dt><dd>${user.seen_at ? when(user.seen_at) : t`never`}</dd></div>
        <div><dt>${t`First seen`}</dt><dd>${when(user.created_at)}</dd></div>
        ${user.blocked ? html`<div><dt>${t`Blocked since`}</dt><dd>${when(user.blocked_at)}</dd></div>` : nothing}
        ${service ? nothing : html`<div class="long"><dt>${t`Account`}</dt><dd dir="auto">${user.sub} <span class="soft small">${t`at ${user.iss}`}</span></dd></div>`}
        <div><dt>${t`Holds`}</dt><dd>${plural(user.holds, '{0} item', '{0} items')}${this.#held(user)}</dd></div>
      </dl>
      <div class="bar">
        ${user.name === this.#app.me.user ? nothing : html`<button type="button" class=${user.blocked ? 'primary' : 'danger'} @click=${() => this.#block(!user.blocked)}>
          ${user.blocked ? t`Let in again` : t`Block …`}</button>`}
        ${service ? nothing : html`<button type="button" @click=${() => this.#rebind(user)}>${t`Give the name to another account …`}</button>`}
        <a href=${`/audit?${new URLSearchParams({ actor: user.name })}`}>${t`What they did`}</a>
      </div>
    </section>`;
  }

  /** What somebody holds is the managers'. */
  #held({ holds }) {
    if (!holds) return nothing;
    if (this.#app.me.role === 'manager') return html` <button type="button" class="plain" @click=${this.#release}>${t`Release …`}</button>`;
    return html`<span class="soft small">, ${t`which a manager can release`}</span>`;
  }

  #release = async () => {
    const loaded = await onDemand(import('../release.js'), { app: this.#app, signal: this.#signal });
    if (await loaded?.releaseDialog(this.#app, { user: this.#name, signal: this.#signal })) this.#reader.again();
  };

  /** The services with tokens that they made; none if they can't be read. */
  async #services() {
    const tokens = await this.#calls.tokens(this.#name).catch(() => []);
    return [...new Set(tokens.filter((it) => it.kind === 'service' && it.made_by === this.#name && it.user !== this.#name).map((it) => it.user))];
  }

  async #block(blocked) {
    const made = blocked ? await this.#services() : [];
    const yes = !blocked || await askForm({
      title: t`Block ${this.#name}?`,
      body: html`<p>${t`They are out within two seconds, in all browsers and with all tokens, and can’t come in again until you let them. What they wait for is cancelled. What they hold stays theirs until its lease ends, or a manager releases it.`}</p>
        ${made.length ? html`<label class="check"><input type="checkbox" name="services">
          <span dir="auto">${t`End the tokens that they made for ${made.join(', ')}, too. Otherwise these services go on, and so can whoever has copied their tokens.`}</span></label>` : nothing}`,
      yes: t`Block`,
      danger: true,
      act: (form) => this.#calls.block(this.#name, true, form.has('services')),
      signal: this.#signal,
    });
    if (yes) await this.#act(blocked ? async () => {} : () => this.#calls.block(this.#name, false), blocked ? t`${this.#name} is blocked.` : t`${this.#name} may come in again.`);
  }

  async #rebind({ iss }) {
    const field = (id, label, value) => html`<div class="field"><label for=${`rebind-${id}`}>${label}</label>
      <input id=${`rebind-${id}`} name=${id} required maxlength="1000" autocomplete="off" .value=${value}></div>`;
    const done = await askForm({
      title: t`Give the name ${this.#name} to another account`,
      body: html`<p>${t`For somebody who has a new account at the identity provider. All sessions and tokens of the former account end.`}</p>
        ${field('iss', t`Issuer`, iss)}${field('sub', t`Subject: what the issuer calls the new account`, '')}`,
      yes: t`Give it the name`,
      danger: true,
      act: (form) => this.#calls.rebind(this.#name, form.get('iss').trim(), form.get('sub').trim()),
      signal: this.#signal,
    });
    if (done) await this.#act(async () => {}, t`${this.#name} is the name of the other account now.`);
  }

  async #act(act, done) {
    this.#error = '';
    try {
      await act();
      this.#app.say(done);
    } catch (e) {
      this.#error = e.message;
    }
    this.#draw();
    this.#reader.again();
    this.#sessions.again();
    this.#tokens.again();
  }
}
