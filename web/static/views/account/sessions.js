/** Where somebody is logged in, and ending it. */

import { html, nothing } from '../../lib/lit-html/lit-html.js';
import { repeat } from '../../lib/lit-html/directives/repeat.js';
import { t } from '../../lang.js';
import { when } from '../../parts.js';
import { ask } from '../../dialog.js';
import { Reader } from '../../reader.js';

const browsers = [['Edg', 'Edge'], ['OPR', 'Opera'], ['Firefox', 'Firefox'], ['Chrom', 'Chrome'], ['Safari', 'Safari'], ['curl', 'curl']];
const systems = [['Android', 'Android'], ['iPhone|iPad', 'iOS'], ['Windows', 'Windows'], ['Mac OS', 'macOS'], ['CrOS', 'ChromeOS'], ['Linux', 'Linux']];

/** A browser as people know it, by its User-Agent. */
function device(agent) {
  const known = (list) => list.find(([mark]) => new RegExp(mark).test(agent ?? ''))?.[1];
  const [browser, system] = [known(browsers) ?? t`A browser`, known(systems)];
  return system ? t`${browser} on ${system}` : browser;
}

export class Sessions {
  #app; #calls; #user; #draw; #reader;
  #error = '';

  /** user: whose, empty: one's own. changed() is called after something was ended. */
  constructor(app, calls, { user = '', draw, changed = () => {}, signal }) {
    this.#app = app;
    this.#calls = calls;
    this.#user = user;
    this.#draw = draw;
    this.changed = changed;
    this.#reader = new Reader(() => calls.sessions(user), draw, { signal });
    this.#reader.again();
  }

  again() { this.#reader.again(); }

  template() {
    const { value: list, error } = this.#reader;
    const own = !this.#user;
    return html`<section class="paper stack" aria-labelledby="sessions-title">
      <div class="head">
        <h2 id="sessions-title">${own ? t`Where you are logged in` : t`Sessions`}</h2>
        ${list?.length ? html`<button type="button" class="push" @click=${this.#endAll}>${t`Sign out everywhere …`}</button>` : nothing}
      </div>
      <p class="error" role="alert" dir="auto">${this.#error || (error ? t`It can’t be read: ${error.message}` : '')}</p>
      ${list?.length === 0 ? html`<p class="soft small">${own ? t`You came in without a session.` : t`They are not logged in now.`}</p>` : nothing}
      ${list?.length ? html`<div class="scroll"><table class="stacks">
        <thead><tr><th scope="col">${t`Browser`}</th><th scope="col">${t`Address`}</th><th scope="col">${t`Since`}</th><th scope="col">${t`Last active`}</th><th scope="col">${t`Until`}</th>
          <th scope="col"><span class="sr">${t`End`}</span></th></tr></thead>
        <tbody>${repeat(list, ({ id }) => id, (s) => this.#row(s))}</tbody></table></div>` : nothing}
    </section>`;
  }

  #row(s) {
    const name = device(s.agent);
    return html`<tr>
      <th scope="row"><span title=${s.agent ?? nothing}>${name}</span> ${s.current ? html`<span class="tag" data-time="ok">${t`this browser`}</span>` : nothing}</th>
      <td data-label=${t`Address`}>${s.address ?? '–'}</td>
      <td data-label=${t`Since`}>${when(s.created_at)}</td>
      <td data-label=${t`Last active`}>${when(s.active_at)}</td>
      <td data-label=${t`Until`}>${when(s.ends_at)}</td>
      <td class="acts">${s.current ? nothing : html`<button type="button" aria-label=${t`End the session of ${name}, ${s.address ?? t`no address`}`}
        @click=${() => this.#end(s)}>${t`End`}</button>`}</td>
    </tr>`;
  }

  async #end(session) {
    await this.#act(() => this.#calls.endSession(session.id), t`The session has ended.`);
  }

  #endAll = async () => {
    const own = !this.#user;
    const yes = await ask({
      title: own ? t`Sign out everywhere?` : t`Sign ${this.#user} out everywhere?`,
      text: own
        ? t`This ends your sessions in all browsers, this one included, and the terminals that you approved there. Your other tokens stay.`
        : t`This ends all sessions, and the terminals that were approved there. Other tokens stay. Whoever is not blocked can log in again.`,
      yes: t`Sign out everywhere`,
      danger: true,
    });
    if (!yes) return;
    if (own && (await Promise.all([...this.#app.leaving].map((f) => f()))).includes(false)) return;
    await this.#act(() => this.#calls.endSessions(this.#user), own ? '' : t`All sessions have ended.`);
    if (own) this.#app.client.me().catch(() => {}); // this one has ended, too
  };

  async #act(act, done) {
    this.#error = '';
    try {
      await act();
      if (done) this.#app.say(done);
    } catch (e) {
      this.#error = e.message;
    }
    this.#draw();
    this.again();
    this.changed();
  }
}
