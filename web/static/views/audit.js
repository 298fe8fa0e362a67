/** For administrators: who did what to people, tasks and other people's work. The address has the filters (act, actor). */

import { html, nothing, render } from '../lib/lit-html/lit-html.js';
import { repeat } from '../lib/lit-html/directives/repeat.js';
import { locale, t } from '../lang.js';
import { onceAFrame } from '../parts.js';
import { Reader } from '../reader.js';
import { value as inWords, label } from '../words.js';
import { calls } from './account/calls.js';

const acts = ['log-in', 'session.end', 'session.change', 'token.create', 'token.end', 'terminal.approve', 'user.create', 'user.change', 'user.block', 'user.unblock',
  'user.rebind', 'task.create', 'task.update', 'task.pause', 'task.resume', 'task.restore', 'task.delete', 'task.preview', 'limits.update', 'skills.set', 'task.compare', 'work.release', 'work.reassign', 'request.cancel',
  'items.give', 'items.redrive', 'absence.enter', 'absence.end', 'absence.import', 'pipeline.read', 'webhook.create', 'webhook.test', 'webhook.rotate', 'webhook.redrive', 'webhook.delete', 'audit.cut'];
const time = new Intl.DateTimeFormat(locale, { dateStyle: 'medium', timeStyle: 'medium' });

export function open(app, place) {
  new Audit(app, place);
}

class Audit {
  #calls; #search; #draw; #reader;
  #older = []; // the pages after the first
  #next = ''; // the cursor of the one after them
  #error = '';

  constructor(app, { element, search, signal }) {
    this.#calls = calls(app.api);
    this.#search = search;
    this.#draw = onceAFrame(() => render(this.#template(), element), signal);
    this.#reader = new Reader(() => this.#calls.audit(this.#filter), () => this.#took(), { signal });
    this.#reader.again();
    this.#draw();
  }

  get #filter() { return { act: this.#search.get('act'), actor: this.#search.get('actor'), limit: 50 }; }

  /** The first page has been read; not by an answer that is too late, whose cursor would be another filter's. */
  #took() {
    if (!this.#reader.error) {
      this.#older = [];
      this.#next = this.#reader.value.next_cursor;
    }
    this.#draw();
  }

  #more = async () => {
    const at = this.#next;
    this.#error = '';
    try {
      const { audit, next_cursor: next } = await this.#calls.audit({ ...this.#filter, cursor: at });
      if (at !== this.#next) return; // another filter was chosen
      this.#older.push(...audit);
      this.#next = next;
    } catch (e) {
      this.#error = e.message;
    }
    this.#draw();
  };

  #choose = (e) => {
    e.preventDefault();
    const form = new FormData(e.target.form ?? e.target);
    for (const name of ['act', 'actor']) {
      const chosen = form.get(name).trim();
      if (chosen) this.#search.set(name, chosen);
      else this.#search.delete(name);
    }
    const query = this.#search.toString();
    history.replaceState(null, '', query ? `/audit?${query}` : '/audit');
    this.#reader.restart();
    this.#draw();
  };

  #template() {
    const { value, error } = this.#reader;
    const rows = [...value?.audit ?? [], ...this.#older];
    const { act, actor } = this.#filter;
    const known = act && !acts.includes(act) ? [act, ...acts] : acts;
    return html`<div class="page account">
      <form class="bar" @submit=${this.#choose}>
        <h1>${t`Audit`}</h1>
        <label class="soft small">${t`Act`} <select name="act" @change=${this.#choose}>
          <option value="">${t`all`}</option>${known.map((a) => html`<option translate="no" ?selected=${a === act}>${a}</option>`)}</select></label>
        <label class="soft small">${t`By`} <input name="actor" type="search" autocomplete="off" .value=${actor ?? ''}></label>
        <button type="submit">${t`Read`}</button>
      </form>
      <p class="error" role="alert" dir="auto">${this.#error || (error ? t`It can’t be read: ${error.message}` : '')}</p>
      ${value && !rows.length ? html`<p class="empty">${act || actor ? t`There is no such act.` : t`Nothing has been done yet.`}</p>` : nothing}
      ${rows.length ? html`<section class="paper stack" aria-label=${t`Acts, newest first`}><div class="scroll"><table class="stacks audit">
        <thead><tr><th scope="col">${t`Act`}</th><th scope="col">${t`Of what`}</th><th scope="col">${t`By`}</th><th scope="col">${t`When`}</th><th scope="col">${t`More`}</th></tr></thead>
        <tbody>${repeat(rows, ({ n }) => n, row)}</tbody></table></div></section>` : nothing}
      ${this.#next ? html`<p><button type="button" @click=${this.#more}>${t`Older`}</button></p>` : nothing}
    </div>`;
  }
}

function row({ n, at, act, object, actor, by, address, outcome, detail, node, credential }) {
  const more = Object.entries(detail ?? {}).filter(([, v]) => v !== null && v !== '' && !(Array.isArray(v) && !v.length));
  return html`<tr>
    <th scope="row"><span translate="no">${act}</span> ${outcome === 'done' ? nothing : html`<span class="tag" data-time="fifth">${outcome}</span>`}</th>
    <td data-label=${t`Of what`} dir="auto">${object ?? '–'}</td>
    <td data-label=${t`By`}><bdi>${actor ?? '–'}</bdi> <span class="soft small">${[by, address].filter(Boolean).join(', ')}</span></td>
    <td data-label=${t`When`}><time datetime=${at}>${time.format(new Date(at))}</time></td>
    <td class="acts"><details><summary><span class="sr">${t`More about`} </span>${t`no. ${n}`}</summary><dl class="facts">
      ${more.map(([name, v]) => html`<div><dt translate="no">${label(name)}</dt><dd dir="auto">${inWords(v)}</dd></div>`)}
      ${credential ? html`<div><dt>${t`Credential`}</dt><dd>${credential}</dd></div>` : nothing}
      <div><dt>${t`Node`}</dt><dd>${node}</dd></div></dl></details></td>
  </tr>`;
}
