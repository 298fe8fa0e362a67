/** Somebody's tokens: the list, a new one, ending one. */

import { html, nothing } from '../../lib/lit-html/lit-html.js';
import { repeat } from '../../lib/lit-html/directives/repeat.js';
import { t } from '../../lang.js';
import { when } from '../../parts.js';
import { ask } from '../../dialog.js';
import { Reader } from '../../reader.js';
import { focusOn } from './focus.js';
import { TokenForm } from './tokenform.js';

const kinds = { cli: t`terminal`, service: t`service` };
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
    return html`<section class="paper stack" aria-labelledby="tokens-title">
      <div class="head">
        <h2 id="tokens-title">${t`Tokens`}</h2>
        ${own && !this.#form && this.#app.me.role ? html`<button id="new-token" type="button" class="push" @click=${this.#open}>${t`New token`}</button>` : nothing}
      </div>
      ${own ? html`<p class="soft small">${t`A program or a terminal shows a token to work as you. It may do what you may, at most.`}</p>` : nothing}
      ${this.#form?.template()}
      <p class="error" role="alert" dir="auto">${this.#error || (error ? t`They can’t be read: ${error.message}` : '')}</p>
      ${list?.length === 0 && !this.#form ? html`<p class="soft small">${own ? t`You have none.` : t`None.`}</p>` : nothing}
      ${list?.length ? html`<div class="scroll"><table class="stacks">
        <thead><tr><th scope="col">${t`Token`}</th><th scope="col">${t`For`}</th><th scope="col">${t`Made`}</th><th scope="col">${t`Last used`}</th><th scope="col">${t`Expires`}</th>
          <th scope="col"><span class="sr">${t`End`}</span></th></tr></thead>
        <tbody>${repeat(list, ({ id }) => id, (token) => this.#row(token))}</tbody></table></div>` : nothing}
    </section>`;
  }

  #row(token) {
    const left = Date.parse(token.expires_at) - Date.now() - this.#app.client.ahead;
    return html`<tr>
      <th scope="row"><span dir="auto">${token.label}</span> ${kinds[token.kind] ? html`<span class="tag" data-time="none">${kinds[token.kind]}</span>` : nothing}
        ${token.admin ? html`<span class="tag" data-time="half">${t`administrator`}</span>` : nothing}
        <span class="soft small token-id"><span translate="no">gw_${token.id}…</span>${!this.#user && token.user !== this.#app.me.user ? `, ${t`of ${token.user}`}` : nothing}</span></th>
      <td data-label=${t`For`}>${token.kind === 'cli' ? t`all that its session may` : html`<span translate="no">${token.scopes.join(', ')}</span>`}
        ${token.tasks ? html`<span class="soft small">${t`in ${token.tasks.join(', ')}`}</span>` : nothing}</td>
      <td data-label=${t`Made`}>${when(token.created_at)}${token.made_by !== token.user ? html` <span class="soft small">${t`by ${html`<bdi>${token.made_by}</bdi>`}`}</span>` : nothing}</td>
      <td data-label=${t`Last used`}>${token.used_at ? html`${when(token.used_at)} <span class="soft small">${token.used_from ? t`from ${token.used_from}` : ''}</span>` : t`never`}</td>
      <td data-label=${t`Expires`}>${when(token.expires_at)} ${left < soon && token.kind !== 'cli' ? html`<span class="tag" data-time="half">${t`soon`}</span>` : nothing}</td>
      <td class="acts"><button type="button" aria-label=${t`End the token ${token.label} …`} @click=${() => this.#end(token)}>${t`End …`}</button></td>
    </tr>`;
  }

  async #end(token) {
    const yes = await ask({
      title: t`End ${token.label}?`,
      text: t`Whatever uses this token is refused from now on. What it holds stays held until its lease ends, or a manager releases it.`,
      yes: t`End it`,
      danger: true,
    });
    if (!yes) return;
    this.#error = '';
    try {
      await this.#calls.endToken(token.id);
      this.#app.say(t`${token.label} has ended.`);
    } catch (e) {
      this.#error = e.message;
    }
    this.#draw();
    this.again();
    this.changed();
  }
}
