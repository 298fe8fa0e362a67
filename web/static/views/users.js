/**
 * For administrators: everybody who has come in. The address has what is searched for (search), or the user who is shown (user).
 */

import { html, nothing, render } from '../lib/lit-html/lit-html.js';
import { repeat } from '../lib/lit-html/directives/repeat.js';
import { t } from '../lang.js';
import { face, onDemand, onceAFrame, when } from '../parts.js';
import { Reader } from '../reader.js';
import { roleName } from '../words.js';
import { calls } from './account/calls.js';
import { focusOn } from './account/focus.js';
import { TokenForm } from './account/tokenform.js';
import { Person, badges } from './users/person.js';

export function open(app, place) {
  const user = place.search.get('user');
  if (user) new Person(app, calls(app.api), user, place);
  else new Users(app, place);
}

const some = (n) => n || html`<span class="none">–</span>`;

class Users {
  #app; #calls; #signal; #draw; #reader; #search; #form = null;
  #more = []; // the pages after the first
  #next = ''; // the cursor of the one after them
  #error = ''; // of reading them
  #timer;

  constructor(app, { element, search, signal }) {
    this.#app = app;
    this.#calls = calls(app.api);
    this.#signal = signal;
    this.#search = search.get('search') ?? '';
    this.#draw = onceAFrame(() => render(this.#template(), element), signal);
    this.#reader = new Reader(() => this.#calls.users({ search: this.#search }), () => this.#took(), { signal });
    this.#reader.again();
    if (TokenForm.waits(app.me.user, true)) this.#open();
    this.#draw();
  }

  /** The first page has been read; not by an answer that is too late, whose cursor would be another search's. */
  #took() {
    if (!this.#reader.error) {
      this.#more = [];
      this.#next = this.#reader.value.next_cursor;
    }
    this.#draw();
  }

  #older = async () => {
    const at = this.#next;
    this.#error = '';
    try {
      const { users, next_cursor: next } = await this.#calls.users({ search: this.#search, cursor: at });
      if (at !== this.#next) return; // another search has begun
      this.#more.push(...users);
      this.#next = next;
    } catch (e) {
      this.#error = e.message;
    }
    this.#draw();
  };

  #find(text) {
    this.#search = text.trim();
    history.replaceState(null, '', this.#search ? `/users?${new URLSearchParams({ search: this.#search })}` : '/users');
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#reader.restart(), 250);
  }

  #open = () => {
    this.#form = new TokenForm(this.#app, this.#calls, {
      service: true,
      draw: this.#draw,
      made: () => this.#reader.again(),
      done: () => {
        this.#form = null;
        this.#draw();
        focusOn('new-token');
      },
    });
    this.#draw();
  };

  #screen = async () => {
    const loaded = await onDemand(import('./users/screen.js'), { app: this.#app, signal: this.#signal });
    if (await loaded?.screenLink(this.#app, this.#calls, this.#signal)) this.#reader.again();
  };

  #template() {
    const { value, error } = this.#reader;
    const all = [...value?.users ?? [], ...this.#more];
    return html`<div class="page account">
      <div class="bar">
        <h1>${t`Users`}</h1>
        <label class="soft small">${t`Name`} <input type="search" .value=${this.#search} @input=${(e) => this.#find(e.target.value)}></label>
        <button type="button" class="push" @click=${this.#screen}>${t`Link for a screen …`}</button>
        ${this.#form ? nothing : html`<button id="new-token" type="button" @click=${this.#open}>${t`New service token`}</button>`}
      </div>
      ${this.#form ? html`<section class="paper stack"><h2>${t`New service token`}</h2>
        <p class="soft small">${t`A service is a program that holds work under a name of its own.`}</p>${this.#form.template()}</section>` : nothing}
      <p class="error" role="alert" dir="auto">${this.#error || (error ? t`They can’t be read: ${error.message}` : '')}</p>
      ${value && !all.length ? html`<p class="empty">${this.#search ? t`Nobody’s name has that in it.` : t`Nobody has come in yet.`}</p>` : nothing}
      ${all.length ? html`<section class="paper stack" aria-label=${t`Users`}><div class="scroll"><table class="stacks">
        <thead><tr><th scope="col">${t`Name`}</th><th scope="col">${t`Role`}</th><th scope="col">${t`Last seen`}</th><th scope="col" class="num">${t`Sessions`}</th>
          <th scope="col" class="num">${t`Tokens`}</th><th scope="col" class="num">${t`Holds`}</th></tr></thead>
        <tbody>${repeat(all, ({ name }) => name, (u) => html`<tr>
          <th scope="row"><span class="who">${face(u.name)}<a href=${`/users?${new URLSearchParams({ user: u.name })}`} dir="auto">${u.name}</a></span> ${badges(u)}</th>
          <td data-label=${t`Role`}>${u.role ? roleName(u.role) : '–'}</td>
          <td data-label=${t`Last seen`}>${u.seen_at ? when(u.seen_at) : '–'}</td>
          <td data-label=${t`Sessions`} class="num">${some(u.sessions)}</td>
          <td data-label=${t`Tokens`} class="num">${some(u.tokens)}</td>
          <td data-label=${t`Holds`} class="num">${some(u.holds)}</td>
        </tr>`)}</tbody></table></div></section>` : nothing}
      ${this.#next ? html`<p><button type="button" @click=${this.#older}>${t`More`}</button></p>` : nothing}
    </div>`;
  }
}
