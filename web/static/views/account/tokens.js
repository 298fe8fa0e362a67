/** Somebody's tokens: the list, a new one, ending one. */

import { html, nothing } from '../../lib/lit-html/lit-html.js';
import { repeat } from '../../lib/lit-html/directives/repeat.js';
import { when } from '../../parts.js';
import { ask } from '../../dialog.js';
import { Reader } from '../../reader.js';
import { TokenForm, focusOn } from './tokenform.js';

const kinds = { cli: 'terminal', service: 'service' };
const soon = 14 * 86_400_000; // ms before its end a token is marked

export class Tokens {
  #app; #calls; #user; #reader; #draw;
  #form = null;
  #error = '';

  /** user: whose, empty: one's own, of which new ones can be made. changed() is called after one was ended or made. */
  constructor(app, calls, { user = '', draw, changed = () => {}, signal }) {
    this.#app = app;
    this.#calls = calls;
    this.#user = user;
    this.#draw = draw;
    this.changed = changed;
    this.signal = signal;
    this.#reader = new Reader(() => calls.tokens(user), draw, { signal });
    this.#reader.again();
    if (!user && TokenForm.waits(app.me.user)) this.#open();
  }

  again() { this.#reader.again(); }

  #open = () => {
    this.#form = new TokenForm(this.#app, this.#calls, {
      draw: this.#draw,
      done: () => {
        this.#form = null;
        this.#draw();
        focusOn('new-token');
      },
      made: () => {
        this.again();
        this.changed();
      },
    });
    this.#draw();
  };

  template() {
    const { value: list, error } = this.#reader;
    const own = !this.#user;
    return html`<section class="card" aria-labelledby="tokens-title">
      <div class="toolbar">
        <h2 id="tokens-title">Tokens</h2>
        ${own && !this.#form && this.#app.me.role ? html`<button id="new-token" type="button" class="push" @click=${this.#open}>New token</button>` : nothing}
      </div>
      ${own ? html`<p class="quiet">A program or a terminal shows a token to work as you. It may do what you may, at most.</p>` : nothing}
      ${this.#form?.template()}
      <p class="error" role="alert" dir="auto">${this.#error || (error ? `They can’t be read: ${error.message}` : '')}</p>
      ${list?.length === 0 && !this.#form ? html`<p class="quiet">${own ? 'You have none.' : 'None.'}</p>` : nothing}
      ${list?.length ? html`<div class="scroll"><table class="stack">
        <thead><tr><th scope="col">Token</th><th scope="col">For</th><th scope="col">Made</th><th scope="col">Last used</th><th scope="col">Expires</th>
          <th scope="col"><span class="visually-hidden">End</span></th></tr></thead>
        <tbody>${repeat(list, ({ id }) => id, (t) => this.#row(t))}</tbody></table></div>` : nothing}
    </section>`;
  }

  #row(t) {
    const left = Date.parse(t.expires_at) - Date.now() - this.#app.client.ahead;
    return html`<tr>
      <th scope="row"><span dir="auto">${t.label}</span> ${kinds[t.kind] ? html`<span class="badge">${kinds[t.kind]}</span>` : nothing}
        ${t.admin ? html`<span class="badge" data-kind="warn">administrator</span>` : nothing}
        <span class="quiet token-id">gw_${t.id}…${!this.#user && t.user !== this.#app.me.user ? html`, of <bdi>${t.user}</bdi>` : nothing}</span></th>
      <td data-label="For">${t.kind === 'cli' ? 'all that its session may' : t.scopes.join(', ')}
        ${t.tasks ? html`<span class="quiet">in ${t.tasks.join(', ')}</span>` : nothing}</td>
      <td data-label="Made">${when(t.created_at)}${t.made_by !== t.user ? html` <span class="quiet">by <bdi>${t.made_by}</bdi></span>` : nothing}</td>
      <td data-label="Last used">${t.used_at ? html`${when(t.used_at)} <span class="quiet">${t.used_from ? `from ${t.used_from}` : ''}</span>` : 'never'}</td>
      <td data-label="Expires">${when(t.expires_at)} ${left < soon && t.kind !== 'cli' ? html`<span class="badge" data-kind="warn">soon</span>` : nothing}</td>
      <td class="acts"><button type="button" aria-label=${`End the token ${t.label} …`} @click=${() => this.#end(t)}>End …</button></td>
    </tr>`;
  }

  async #end(token) {
    const yes = await ask({
      title: `End ${token.label}?`,
      text: 'Whatever uses this token is refused from now on. What it holds stays held until its lease ends, or a manager releases it.',
      yes: 'End it',
      danger: true,
    });
    if (!yes) return;
    this.#error = '';
    try {
      await this.#calls.endToken(token.id);
      this.#app.say(`${token.label} has ended.`);
    } catch (e) {
      this.#error = e.message;
    }
    this.#draw();
    this.again();
    this.changed();
  }
}
