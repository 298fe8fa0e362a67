/** Items pushed to an inbox by hand: a table that is pasted or dropped, how it was understood, and then the call. */

import { html, nothing } from '../../lib/lit-html/lit-html.js';
import { locale, plural, t } from '../../lang.js';
import { icon } from '../../parts.js';
import { sample } from './sample.js';
import { fields } from './settings.js';

const count = new Intl.NumberFormat(locale);
const batch = 500; // items of a call, which may have 1 MiB
const shown = 8; // rows
const most = 20; // faulty rows that are named
const own = ['item', 'priority', 'not_before', 'deadline', 'needs', 'needs_until', 'slots', 'done_by', 'exclusive'];
const counts = ['priority', 'slots', 'done_by'];
const bytes = (text) => new TextEncoder().encode(text).length;

/** The rows of a text of values, which commas, semicolons or tabs part, as spreadsheets write and copy them. */
export function parted(text) {
  const [first] = text.split(/\r?\n/, 1);
  const by = ['\t', ';', ','].toSorted((a, b) => first.split(b).length - first.split(a).length)[0];
  const rows = [];
  let row = [];
  let cell = '';
  let quoted = false;
  const end = () => {
    row.push(cell);
    cell = '';
  };
  for (let i = 0; i < text.length; i++) {
    const c = text[i];
    if (quoted) {
      if (c !== '"') cell += c;
      else if (text[i + 1] === '"') cell += text[i++];
      else quoted = false;
    } else if (c === '"' && cell === '') quoted = true;
    else if (c === by) end();
    else if (c === '\n') {
      end();
      rows.push(row);
      row = [];
    } else if (c !== '\r') cell += c;
  }
  end();
  rows.push(row);
  return { by, rows: rows.filter((r) => r.some((v) => v.trim())), open: quoted };
}

/** A detail as JSON has it: a plain number, true or false, otherwise text. An IBAN or 007 stays text. */
function detail(text) {
  const v = text.trim();
  if (/^-?(0|[1-9]\d{0,14})(\.\d{1,6})?$/.test(v)) return Number(v);
  return v === '' ? null : v === 'true' ? true : v === 'false' ? false : v;
}

/** A time with a zone; one without is the reader's own. */
function time(text) {
  const at = new Date(text.trim());
  return Number.isNaN(at.getTime()) || !/^\d{4}-\d\d-\d\d/.test(text.trim()) ? null : at.toISOString();
}

/** What a text says: {by, columns, items, faults: [{row, why}]}. Rows count from 1, with the heading. */
export function understood(text) {
  const { by, rows, open } = parted(text);
  const columns = (rows[0] ?? []).map((c) => c.trim());
  const key = Math.max(0, columns.findIndex((c) => c.toLowerCase() === 'item'));
  const seen = new Map();
  const items = [];
  const faults = open ? [{ row: rows.length, why: t`A quotation mark is not closed.` }] : [];
  for (const [i, row] of rows.slice(1).entries()) {
    const n = i + 2;
    const item = (row[key] ?? '').trim();
    const one = { item, details: {} };
    const wrong = [];
    if (row.length > columns.length) wrong.push(t`It has more values than the heading has names.`);
    if (!item) wrong.push(t`It has no item.`);
    else if (bytes(item) > 200) wrong.push(t`Its item is longer than 200 bytes.`);
    else if (seen.has(item)) wrong.push(t`It has the same item as row ${seen.get(item)}.`);
    columns.forEach((name, j) => {
      if (j === key || !name) return;
      const v = row[j] ?? '';
      const as = name.toLowerCase();
      if (!own.includes(as)) one.details[name] = detail(v);
      else if (v.trim()) {
        const is = counts.includes(as) ? (/^[-+]?\d{1,9}$/.test(v.trim()) ? Number(v) : null)
          : as === 'exclusive' ? v.trim() : as === 'needs' ? v.split(',').map((group) => group.trim()).filter(Boolean) : time(v);
        if (is === null) wrong.push(counts.includes(as) ? t`${name}: “${v}” is not a whole number.` : t`${name}: “${v}” is not a time such as 2026-11-30 17:00.`);
        else one[as] = is;
      }
    });
    if (wrong.length) faults.push({ row: n, why: wrong.join(' ') });
    else {
      seen.set(item, n);
      items.push(one);
    }
  }
  return { by, columns, key, items, faults };
}

const separators = { '\t': t`tabs`, ';': t`semicolons`, ',': t`commas` };

export class Pushing {
  #view;
  #text = '';
  #is = null; // as it was understood
  #state = ''; // busy, done, failed
  #said = '';
  #over = false; // a file is held over the page

  /** view: the TaskView. */
  constructor(view) { this.#view = view; }

  #take(text) {
    this.#text = text;
    this.#is = text.trim() ? understood(text.replace(/^\uFEFF/, '')) : null;
    this.#state = this.#said = '';
    this.#view.draw();
  }

  async #file(file) {
    if (!file) return;
    if (file.size > 20_000_000) {
      this.#state = 'failed';
      this.#said = t`This file has more than 20 MB: push it from the command line, with getwork items push.`;
      this.#view.draw();
      return;
    }
    this.#take(await file.text());
  }

  /** Sends all, so many at a time. Repeating it is harmless: what is open already is counted, and not pushed again. */
  #push = async () => {
    if (this.#state === 'busy' || !this.#is?.items.length) return;
    const { api, app, name } = this.#view;
    const { items } = this.#is;
    this.#state = 'busy';
    let [sent, accepted, duplicates] = [0, 0, 0];
    try {
      while (sent < items.length) {
        this.#said = t`${count.format(sent)} of ${count.format(items.length)} sent`;
        this.#view.draw();
        let size = batch;
        while (size > 1 && bytes(JSON.stringify(items.slice(sent, sent + size))) > 900_000) size = Math.ceil(size / 2);
        const is = await api.push(name, items.slice(sent, sent + size));
        accepted += is.accepted;
        duplicates += is.duplicates;
        sent += size;
      }
      this.#state = 'done';
      this.#said = [plural(accepted, '{0} item is pushed.', '{0} items are pushed.', count.format(accepted)),
        duplicates ? plural(duplicates, '{0} was there already.', '{0} were there already.') : ''].filter(Boolean).join(' ');
      this.#text = '';
      this.#is = null;
      app.say(this.#said);
    } catch (e) {
      this.#state = 'failed';
      this.#said = sent ? t`${count.format(sent)} were sent, then it failed: ${e.message}. Push again: what is there already stays as it is.` : t`It failed: ${e.message}.`;
    }
    this.#view.draw();
  };

  template() {
    const is = this.#is;
    const over = (yes) => (e) => {
      e.preventDefault();
      if (this.#over === yes) return;
      this.#over = yes;
      this.#view.draw();
    };
    const drop = (e) => {
      e.preventDefault();
      this.#over = false;
      this.#file(e.dataTransfer.files[0]);
    };
    return html`<div class="split"><div class="stack">
      <section class="paper stack pushing" aria-labelledby="pushing-title" data-over=${this.#over ? '' : nothing} @dragover=${over(true)} @dragleave=${over(false)} @drop=${drop}>
        <div class="head"><h2 id="pushing-title">${t`Push items`}</h2><span class="count">${t`Paste rows from a spreadsheet, or drop a CSV file here`}</span></div>
        <div class="field"><label for="push-text">${t`Rows, with a heading`}</label>
          <textarea id="push-text" class="code" rows="6" dir="ltr" spellcheck="false" .value=${this.#text} placeholder=${t`item,deadline,borrower,amount`}
            aria-describedby="push-help" @input=${(e) => this.#take(e.target.value)}></textarea>
          <small id="push-help">${t`The column item is the key, or else the first one. priority, not_before, deadline, needs, needs_until, slots, done_by and exclusive mean what they say; all others are shown as details.`}</small></div>
        <p class="bar"><label class="button">${t`Choose a file …`}<input type="file" class="sr" accept=".csv,.tsv,.txt,text/csv" @change=${(e) => this.#file(e.target.files[0])}></label>
          <button type="button" class="primary push" id="push-items" aria-disabled=${String(this.#state === 'busy' || !is?.items.length)} @click=${this.#push}>${
            is?.items.length ? plural(is.items.length, 'Push {0} item', 'Push {0} items', count.format(is.items.length)) : t`Push`}</button></p>
        <p class=${this.#state === 'failed' ? 'error' : 'soft'} role="status" dir="auto">${this.#said}</p>
      </section>
      ${is ? this.#preview(is) : nothing}
    </div>
    <aside class="stack" aria-label=${t`Live card`}>${is?.items.length ? html`<h2 class="minor soft">${t`What a worker sees of the first row`}</h2>
      ${sample(is.items[0], this.#view.form.value(fields.get('display')), this.#view.form.base.title || this.#view.name)}` : nothing}</aside></div>`;
  }

  #preview({ by, columns, key, items, faults }) {
    const names = columns.filter((c, j) => j !== key && c);
    const value = (one, name) => one[name.toLowerCase()] ?? one.details[name] ?? '–';
    return html`<section class="paper stack" aria-labelledby="understood-title">
      <div class="head"><h2 id="understood-title">${t`How it was understood`}</h2><span class="count">${
        [plural(items.length, '{0} item', '{0} items', count.format(items.length)), t`parted by ${separators[by]}`].join(', ')}</span></div>
      ${faults.length ? html`<div class="faults" data-time="fifth"><p class="time">${icon('circle-alert')} ${
        plural(faults.length, '{0} row can’t be pushed, and is left out:', '{0} rows can’t be pushed, and are left out:', count.format(faults.length))}</p>
        <ul>${faults.slice(0, most).map(({ row, why }) => html`<li dir="auto">${t`Row ${row}: ${why}`}</li>`)}</ul>
        ${faults.length > most ? html`<p class="soft small">${t`… and ${count.format(faults.length - most)} more`}</p>` : nothing}</div>` : nothing}
      ${items.length ? html`<div class="scroll" tabindex="0" role="region" aria-labelledby="understood-title"><table>
        <thead><tr><th scope="col" translate="no">${own[0]}</th>${names.map((c) => html`<th scope="col" dir="auto">${c} ${
          own.includes(c.toLowerCase()) ? html`<span class="tag" data-time="now">${t`setting`}</span>` : nothing}</th>`)}</tr></thead>
        <tbody>${items.slice(0, shown).map((one) => html`<tr><th scope="row" dir="auto">${one.item}</th>${names.map((c) => html`<td dir="auto">${String(value(one, c))}</td>`)}</tr>`)}</tbody>
      </table></div>` : nothing}
    </section>`;
  }
}
