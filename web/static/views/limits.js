/**
 * Limits: how many items one user may hold at a time, over all tasks. Managers change them, observers read them. What is typed is kept
 * in the tab's storage, with the limits that it is based on; if somebody changes those meanwhile, the user is asked.
 */

import { html, nothing, render } from '../lib/lit-html/lit-html.js';
import { repeat } from '../lib/lit-html/directives/repeat.js';
import { live } from '../lib/lit-html/directives/live.js';
import { t } from '../lang.js';
import { onceAFrame } from '../parts.js';
import { focusOn } from './account/focus.js';

/** Where the input is kept; before it is lost, a log-out asks by this name, which no task has. */
const keyFor = (user) => `getwork draft: ${user}: ${t`Limits`}`;
const most = 1_000_000;
const parts = { groups: t`Group`, people: t`Person or program` };

/** The limits as rows {part, name, value: text}; everybody's has no name. An empty value is no limit. */
function rowsOf({ everybody = null, groups = {}, people = {} }) {
  const named = (part, limits) => Object.entries(limits).sort(([a], [b]) => (a < b ? -1 : 1)).map(([name, n]) => ({ part, name, value: n === null ? '' : String(n) }));
  return [{ part: 'everybody', name: '', value: everybody === null ? '' : String(everybody) }, ...named('groups', groups), ...named('people', people)];
}

function limitsOf(rows) {
  const limits = {};
  for (const { part, name, value } of rows) {
    const n = value === '' ? null : Number(value);
    if (part !== 'everybody') (limits[part] ??= Object.create(null))[name] = n;
    else if (n !== null) limits.everybody = n;
  }
  return limits;
}

const keyOf = ({ part, name }) => `${part} ${name}`;
const byKey = (rows) => new Map(rows.map((row) => [keyOf(row), row]));

/** The keys of the rows in which two limits differ. */
function differing(one, other) {
  const [a, b] = [byKey(one), byKey(other)];
  return [...new Set([...a.keys(), ...b.keys()])].filter((key) => a.get(key)?.value !== b.get(key)?.value);
}

export function open(app, place) { return new Limits(app, place).read(); }

class Limits {
  #app; #draw;
  #base = null; // {rows, tag}: what the input is based on
  #rows = null; // the input
  #theirs = null; // {rows, tag}: what somebody else has saved meanwhile
  #busy = false;
  #error = '';

  constructor(app, { element, signal }) {
    this.#app = app;
    this.#draw = onceAFrame(() => render(this.#template(), element), signal);
  }

  get #key() { return keyFor(this.#app.me.user); }

  get #mayChange() { return this.#app.me.role === 'manager'; }

  get #dirty() { return differing(this.#base.rows, this.#rows).length > 0; }

  async read() {
    try {
      const now = await this.#now();
      const kept = this.#mayChange ? JSON.parse(sessionStorage.getItem(this.#key)) : null;
      this.#base = kept?.base ?? now;
      this.#rows = kept?.rows ?? now.rows.map((row) => ({ ...row }));
      if (this.#base.tag !== now.tag) this.#meet(now);
    } catch (e) {
      this.#error = t`They can’t be read: ${e.message}`;
    }
    this.#draw();
  }

  async #now() {
    const { limits, tag } = await this.#app.api.limits();
    return { rows: rowsOf(limits), tag };
  }

  /** Others' changes are taken over, unless something is typed that is not saved. */
  #meet(now) {
    if (this.#dirty && differing(this.#base.rows, now.rows).length > 0) {
      this.#theirs = now;
      focusOn('conflict-title');
      return;
    }
    this.#rebase(now);
  }

  /** What was typed now changes these limits, and what others changed elsewhere stays. */
  #rebase(now) {
    const mine = byKey(this.#rows);
    const rows = byKey(now.rows);
    for (const key of differing(this.#base.rows, this.#rows)) {
      if (mine.has(key)) rows.set(key, mine.get(key));
      else rows.delete(key);
    }
    this.#base = now;
    this.#rows = [...rows.values()].map((row) => ({ ...row }));
    this.#theirs = null;
    this.#keep();
  }

  #keep() {
    if (this.#dirty) sessionStorage.setItem(this.#key, JSON.stringify({ base: this.#base, rows: this.#rows }));
    else sessionStorage.removeItem(this.#key);
    this.#draw();
  }

  #type(row, field, value) {
    row[field] = value;
    this.#error = '';
    this.#keep();
  }

  #add = () => {
    this.#rows.push({ part: 'groups', name: '', value: '', isNew: true });
    this.#draw();
    focusOn(`name-${this.#rows.length - 1}`);
  };

  #remove(row) {
    this.#rows.splice(this.#rows.indexOf(row), 1);
    this.#keep();
    focusOn('add');
  }

  /** What is wrong with the input, as far as the page can say. */
  #wrong() {
    const names = this.#rows.map(keyOf);
    if (this.#rows.some(({ part, name }) => part !== 'everybody' && !name.trim())) return t`A limit lacks its name.`;
    const twice = this.#rows.find((row, i) => names.indexOf(keyOf(row)) !== i);
    return twice ? t`${twice.name} has two limits.` : '';
  }

  #save = async (e) => {
    e?.preventDefault();
    if (this.#busy || this.#theirs) return;
    for (const row of this.#rows) row.name = row.name.trim();
    this.#error = this.#wrong();
    if (!this.#error && !this.#dirty) this.#app.say(t`There is nothing to save.`);
    else if (!this.#error) await this.#send();
    this.#draw();
  };

  async #send() {
    this.#busy = true;
    this.#draw();
    try {
      const { limits, tag } = await this.#app.api.setLimits(limitsOf(this.#rows), this.#base.tag);
      this.#base = { rows: rowsOf(limits), tag };
      this.#rows = rowsOf(limits);
      this.#keep();
      this.#app.say(t`Saved.`);
    } catch (e) {
      this.#error = e.message;
      const now = e.type === '/problems/stale-version' ? await this.#now().catch(() => null) : null;
      if (now) {
        this.#error = '';
        this.#meet(now);
        if (!this.#theirs) this.#error = t`Somebody changed them a moment before. They are shown as they are now: look, and save again.`;
      }
    }
    this.#busy = false;
  }

  #saveMine = () => {
    this.#rebase(this.#theirs);
    this.#save();
  };

  #goOn = () => {
    this.#rebase(this.#theirs);
    focusOn('save');
  };

  #loadTheirs = () => {
    this.#base = this.#theirs;
    this.#rows = this.#theirs.rows.map((row) => ({ ...row }));
    this.#theirs = null;
    this.#keep();
    focusOn('save');
  };

  #template() {
    return html`<div class="page limits">
      <h1>${t`Limits`}</h1>
      <p class="soft">${t`How many items one user may hold at a time, over all tasks. A limit of their own comes first, then the greatest of their groups, then everybody’s. Programs have none but one of their own. A lower limit takes nothing away.`}</p>
      <p class="error" role="alert" dir="auto">${this.#error}</p>
      ${this.#theirs ? this.#conflict() : nothing}
      ${this.#rows ? this.#form() : this.#error ? nothing : html`<p class="soft">${t`Reading …`}</p>`}
    </div>`;
  }

  #form() {
    const [everybody, ...named] = this.#rows;
    return html`<form class="paper" novalidate @submit=${this.#save}>
      <div class="scroll"><table class="stack">
        <thead><tr><th scope="col">${t`Whose`}</th><th scope="col">${t`Name`}</th><th scope="col">${t`Limit`}</th><th scope="col"><span class="sr">${t`Remove`}</span></th></tr></thead>
        <tbody>
          <tr><th scope="row">${t`Everybody`}</th><td data-label=${t`Name`}>–</td><td data-label=${t`Limit`}>${this.#number(everybody, t`Everybody`)}</td><td></td></tr>
          ${repeat(named, (row) => row, (row, i) => this.#row(row, i + 1))}
        </tbody></table></div>
      ${this.#mayChange ? html`<div class="bar">
        <button type="button" id="add" @click=${this.#add}>${t`Add a limit`}</button>
        <button type="submit" id="save" class="primary push" aria-disabled=${this.#busy || this.#theirs ? 'true' : nothing}>${this.#busy ? t`One moment …` : t`Save`}</button>
      </div>` : nothing}
    </form>`;
  }

  #row(row, i) {
    const { part, name, isNew } = row;
    const whose = isNew
      ? html`<select aria-label=${t`Whose`} @change=${(e) => this.#type(row, 'part', e.target.value)}>
          ${Object.entries(parts).map(([value, label]) => html`<option value=${value} .selected=${live(part === value)}>${label}</option>`)}</select>`
      : parts[part];
    return html`<tr>
      <th scope="row">${whose}</th>
      <td data-label=${t`Name`} dir="auto">${isNew ? html`<input id=${`name-${i}`} maxlength="128" autocomplete="off" spellcheck="false" aria-label=${t`Name`}
        .value=${live(name)} @input=${(e) => this.#type(row, 'name', e.target.value)}>` : html`<span translate="no">${name}</span>`}</td>
      <td data-label=${t`Limit`}>${this.#number(row, name || t`Limit`)}</td>
      <td class="acts">${this.#mayChange ? html`<button type="button" aria-label=${t`Remove the limit of ${name || t`no name`}`} @click=${() => this.#remove(row)}>${t`Remove`}</button>` : nothing}</td>
    </tr>`;
  }

  #number(row, label) {
    if (!this.#mayChange) return row.value || t`none##limit`;
    return html`<input type="number" min="0" max=${most} step="1" inputmode="numeric" aria-label=${t`Limit: ${label}`} placeholder=${t`none##limit`}
      .value=${live(row.value)} @input=${(e) => this.#type(row, 'value', e.target.value)}>`;
  }

  #conflict() {
    const [base, now, mine] = [this.#base.rows, this.#theirs.rows, this.#rows].map(byKey);
    const keys = new Set([...differing(this.#base.rows, this.#theirs.rows), ...differing(this.#base.rows, this.#rows)]);
    const text = (rows, key) => (rows.has(key) ? rows.get(key).value || t`none##limit` : '–');
    const same = (one, other, key) => one.get(key)?.value === other.get(key)?.value;
    const named = (key) => [now, base, mine].map((rows) => rows.get(key)).find(Boolean);
    return html`<section class="paper" aria-labelledby="conflict-title">
      <h2 id="conflict-title" tabindex="-1">${t`Changed while you typed`}</h2>
      <p>${t`What you typed is still here, and not saved.`}</p>
      <div class="scroll" tabindex="0" role="region" aria-label=${t`What differs`}><table>
        <thead><tr><th scope="col">${t`Limit`}</th><th scope="col">${t`was`}</th><th scope="col">${t`now`}</th><th scope="col">${t`yours`}</th></tr></thead>
        <tbody>${[...keys].map((key) => html`<tr><th scope="row" dir="auto">${named(key).name ? html`<span translate="no">${named(key).name}</span>` : t`Everybody`}</th>
          <td>${text(base, key)}</td><td>${same(base, now, key) ? html`<span class="soft">${t`unchanged`}</span>` : text(now, key)}</td>
          <td>${same(base, mine, key) ? html`<span class="soft">${t`not typed`}</span>` : text(mine, key)}</td></tr>`)}</tbody>
      </table></div>
      <div class="bar">
        <button type="button" id="save-mine" class="primary" @click=${this.#saveMine}>${t`Save mine over it`}</button>
        <button type="button" id="go-on" @click=${this.#goOn}>${t`Keep mine, and look again before I save`}</button>
        <button type="button" id="load-theirs" @click=${this.#loadTheirs}>${t`Load theirs`}</button>
      </div>
      <p class="soft">${t`Saving yours changes only what you typed; what they changed elsewhere stays.`}</p>
    </section>`;
  }
}
