/** The user's menu, and the warning before a session ends. */

import { html, nothing, render } from './lib/lit-html/lit-html.js';
import { stored, t } from './lang.js';
import { wear, worn } from './theme.js';
import { clock, roleName } from './words.js';

const warn = 3 * 60_000; // ms before the end
const often = 60_000; // ms between two signs of life, at least
const looks = 10_000; // ms between two looks whether another tab has prolonged it, while the warning is shown
const longest = 2 ** 31 - 1; // of a timer

/** Shows both, and whether the user is away. */
export function open(app) {
  const session = new Session(app);
  const { role, wall } = app.me;
  const works = role && role !== 'observer' && !wall;
  const absence = works ? import('./away.js').then(({ Absence }) => new Absence(app)) : null;
  absence?.catch(() => {}); // the menu says so
  new Menu(app, session, absence);
  if (app.me.by === 'session') session.start();
}

/** Where to log in, to come back to this address. again: also if the identity provider knows the browser. */
export function logInAt(path, again = false) {
  const url = new URL(path, location.origin);
  if (again) url.searchParams.set('again', '1');
  const here = location.pathname + location.search;
  if (here !== '/') url.searchParams.set('return_to', here);
  return url.pathname + url.search;
}

/** When the session ends: at a fixed time, and, for most, sooner if the user does nothing. Only what people do prolongs it. */
class Session {
  me;

  #app;
  #place = Object.assign(document.createElement('div'), { className: 'ending', hidden: true });
  #timer;
  #told = -Infinity; // when the server was last told that the user is there
  #warned = ''; // 'idle' or 'end'

  constructor(app) {
    this.#app = app;
    this.me = app.me;
  }

  start() {
    this.#place.setAttribute('role', 'alert');
    document.getElementById('banner').after(this.#place);
    for (const type of ['pointerdown', 'pointermove', 'keydown', 'wheel', 'touchmove']) {
      document.addEventListener(type, (e) => this.#present(e), { capture: true, passive: true });
    }
    document.addEventListener('visibilitychange', () => { if (!document.hidden) this.#plan(); });
    this.#plan();
  }

  /** ms until a time of the server's, such as me.idle_at. */
  left(time) { return time ? Date.parse(time) - Date.now() - this.#app.client.ahead : Infinity; }

  /** Reads when it ends. If it has ended, the client says so to the page. */
  async read() {
    this.me = await this.#app.client.me();
    this.#plan();
  }

  #plan() {
    const [idle, end] = [this.left(this.me.idle_at), this.left(this.me.ends_at)];
    const first = Math.min(idle, end);
    this.#show(first > warn ? '' : end <= idle ? 'end' : 'idle');
    const wait = first > warn ? first - warn : Math.min(looks, Math.max(first, 500));
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.read().catch(() => this.#retry()), Math.min(wait, longest));
  }

  #retry() {
    if (this.#app.client.state.name !== 'stopped') this.#timer = setTimeout(() => this.#plan(), looks);
  }

  #present(e) {
    const still = e.type === 'pointermove' && !e.movementX && !e.movementY; // the page moved under the pointer
    if (document.hidden || still || !this.me.idle_at) return;
    const now = performance.now();
    if (now - this.#told > (this.#warned === 'idle' ? 2000 : often)) this.#stay();
  }

  #stay = async () => {
    this.#told = performance.now();
    try {
      await this.#app.api.call('POST', '/api/v1/me/active');
      await this.read();
    } catch { /* the next sign of life is sent again, and the end is known by the clock */ }
  };

  #show(what) {
    if (what === this.#warned) return;
    this.#warned = what;
    const at = what ? clock(what === 'idle' ? this.me.idle_at : this.me.ends_at) : '';
    this.#place.hidden = !what;
    render(html`<div class="banner">
      ${what === 'idle' ? html`<p>${t`You have done nothing here for a while. You will be logged out at ${at} unless you stay.`}</p>
        <button type="button" @click=${this.#stay}>${t`Stay logged in`}</button>` : nothing}
      ${what === 'end' ? html`<p>${t`Your session ends at ${at}, whatever you do. Anything not sent or saved by then waits in this tab.`}</p>
        <a href=${logInAt('/auth/login', true)}>${t`Log in again now`}</a>` : nothing}
    </div>`, this.#place);
  }
}

/** What the menu behind the user's name says of them, and offers them. The rest of it stands in index.html. */
class Menu {
  #app; #session; #absence;
  #place = document.getElementById('me');

  constructor(app, session, absence) {
    this.#absence = absence;
    this.#app = app;
    this.#session = session;
    document.getElementById('me-menu').addEventListener('beforetoggle', (e) => { if (e.newState === 'open') this.#open(); });
    this.#draw();
  }

  #open() {
    this.#draw();
    if (this.#app.me.by === 'session') this.#session.read().then(() => this.#draw(), () => {});
  }

  #draw() {
    const { user, role, admin, groups, wall, by } = this.#session.me;
    const own = role && roleName(role).replace(/^./u, (first) => first.toUpperCase());
    const roles = own && admin ? t`${own} and administrator` : own ?? t`Administrator`;
    render(html`<p><b dir="auto">${user}</b><br>${roles}</p>
      ${groups.length ? html`<p class="quiet" dir="auto">${groups.length > 6 ? t`In ${groups.slice(0, 6).join(', ')} and ${groups.length - 6} more groups` : t`In ${groups.join(', ')}`}</p>` : nothing}
      ${by === 'dev' ? nothing : this.#until()}
      ${language()}${theme()}
      ${this.#absence ? html`<button type="button" @click=${() => this.#away()}>${t`Away …`}</button>` : nothing}
      ${wall || by === 'dev' ? nothing : html`<a href="/account">${t`Your account`}</a>`}`, this.#place);
  }

  #away() {
    this.#absence.then((absence) => absence.ask()).catch(() => this.#app.say(t`It can’t be loaded now. Load the page anew.`));
  }

  #until() {
    const { ends_at: end, idle_at: idle } = this.#session.me;
    if (!end) return html`<p class="quiet">${t`You are logged in by a proxy.`}</p>`;
    const sooner = idle && Date.parse(idle) < Date.parse(end);
    return html`<p class="quiet">${sooner ? t`Logged in until ${clock(end)}; if you do nothing, until ${clock(idle)}.` : t`Logged in until ${clock(end)}.`}</p>`;
  }
}

/** Languages call themselves by their own names, so that everybody finds their own. Another one begins with the whole page, and in other windows when they are loaded again. */
const language = () => choice(t`Language`, localStorage.getItem(stored) ?? '', [['', t`As the browser wants`], ['en', 'English'], ['de', 'Deutsch']], (tag) => {
  if (tag) localStorage.setItem(stored, tag);
  else localStorage.removeItem(stored);
  const url = new URL(location.href);
  url.searchParams.delete('lang'); // it would choose again
  location.assign(url);
});

const theme = () => choice(t`Colours`, worn(), [['', t`As the browser wants`], ['light', t`Light`], ['dark', t`Dark`]], wear);

const choice = (name, chosen, options, choose) => html`<label class="choice">${name} <select @change=${(e) => choose(e.target.value)}>${options.map(([value, text]) => html`
  <option value=${value} lang=${value.length === 2 ? value : nothing} ?selected=${value === chosen}>${text}</option>`)}</select></label>`;
