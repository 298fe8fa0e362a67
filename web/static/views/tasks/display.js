/** How an item is shown, as a form beside an item of the preview. What the form can't say, the JSON behind its switch can. */

import { html, nothing } from '../../lib/lit-html/lit-html.js';
import { live } from '../../lib/lit-html/directives/live.js';
import { plural, t } from '../../lang.js';
import { icon } from '../../parts.js';
import { label } from '../../words.js';
import { changedTag, fieldOf } from './fields.js';
import { sample } from './sample.js';
import { fields, read } from './settings.js';

const formats = { '': t`as its type`, text: t`text`, number: t`number`, date: t`date`, percentage: t`percentage`, iban: t`IBAN`, link: t`link`, badge: t`badge` };
const currencies = ['EUR', 'USD', 'GBP', 'CHF', 'SEK', 'NOK', 'DKK', 'PLN', 'CZK', 'HUF', 'JPY', 'CNY', 'INR', 'BRL', 'CAD', 'AUD'];
const field = fields.get('display');

export class Display {
  #view;
  #json = false; // it is edited as text
  #row = 0; // of the preview, beside the form
  #badges = {}; // by column, as they are typed
  #dragged = null;

  /** view: the TaskView. */
  constructor(view) { this.#view = view; }

  /** The display as it is typed; null: its text can't be read. */
  get #display() {
    const { value, error } = read(field, this.#view.form.text(field));
    return error ? null : value ?? {};
  }

  get #rows() { return this.#view.samples; }

  /** The columns that items have, as far as they are known. */
  get #columns() { return [...new Set(this.#rows.flatMap((r) => Object.keys(r.details ?? {})))]; }

  #change(changes) {
    const now = Object.fromEntries(Object.entries({ ...this.#display, ...changes }).filter(([, v]) => v !== '' && v !== undefined && !(Array.isArray(v) && !v.length)));
    this.#view.type('display', Object.keys(now).length ? JSON.stringify(now, null, 2) : '');
  }

  #changeField(i, changes) {
    const all = this.#display.fields.map((f, n) => (n === i
      ? Object.fromEntries(Object.entries({ ...f, ...changes }).filter(([, v]) => v !== '' && v !== undefined)) : f));
    this.#change({ fields: all });
  }

  #move(i, to) {
    const all = [...this.#display.fields];
    if (to < 0 || to >= all.length) return;
    all.splice(to, 0, ...all.splice(i, 1));
    this.#change({ fields: all });
  }

  template(changed, typed) {
    const { form } = this.#view;
    const display = this.#display;
    const asText = this.#json || !display;
    const one = display?.one;
    return html`<div class="split">
      <div class="stack"><section class="paper stack" aria-labelledby="display-title">
        <div class="head"><h2 id="display-title">${one ? t`How a ${one} is shown` : t`How an item is shown`}</h2>${changed.includes(field) && !asText ? changedTag() : nothing}
          <button type="button" class="plain" id="as-json" aria-pressed=${asText} @click=${() => this.#turn()}>${t`As JSON`}</button></div>
        ${asText ? fieldOf(field, form, changed, typed, []) : this.#form(display)}
      </section></div>
      <aside class="stack" aria-label=${t`Live card`}>${this.#card(display)}</aside>
    </div>`;
  }

  #turn() {
    this.#json = !this.#json;
    this.#view.draw();
  }

  #form(display) {
    const line = (name, title, hint = nothing) => html`<div class="field"><label for=${`display-${name}`}>${title}</label>
      <input id=${`display-${name}`} .value=${live(display[name] ?? '')} autocomplete="off" dir="auto" placeholder=${hint}
        @input=${(e) => this.#change({ [name]: e.target.value })}></div>`;
    const error = this.#view.form.error(field);
    const all = display.fields ?? [];
    const others = this.#columns.filter((c) => !all.some((f) => f.column === c));
    return html`<p class="error" id="set-display" tabindex="-1" role="alert" dir="auto">${error}</p>
      <div class="field"><label for="display-title-of">${t`Title`}</label><input id="display-title-of" .value=${live(display.title ?? '')} autocomplete="off" dir="auto"
        placeholder=${t`{borrower}, loan {item}`} aria-describedby="title-help" @input=${(e) => this.#change({ title: e.target.value })}><small id="title-help">${t`Columns of the query in braces.`}</small></div>
      <div class="halves">${line('one', t`One is called`, t`loan`)}${line('many', t`Many are called`, t`loans`)}${line('url', t`Opens`, t`https://loans.example/{item}`)}</div>
      <fieldset class="stack"><legend>${t`Fields`}</legend>
        <ul>${all.map((f, i) => this.#rule(f, i, all.length))}</ul>
        ${this.#adding(all, others)}
      </fieldset>`;
  }

  #rule(f, i, n) {
    const name = f.column;
    const key = (e) => {
      const by = { ArrowUp: -1, ArrowDown: 1 }[e.key];
      if (!by) return;
      e.preventDefault();
      this.#move(i, i + by);
      const to = Math.min(n - 1, Math.max(0, i + by));
      requestAnimationFrame(() => requestAnimationFrame(() => document.querySelectorAll('.rule .grip')[to]?.focus()));
    };
    const money = f.format === 'money' ? ['money', f.currency].join(' ') : '';
    const kinds = [...new Set([...money ? [f.currency] : [], ...currencies])].filter(Boolean);
    const choose = (value) => {
      const [format, currency] = value.split(' ');
      this.#changeField(i, { format, currency, badges: format === 'badge' ? f.badges : undefined });
    };
    return html`<li class="rule" @dragover=${(e) => { if (this.#dragged !== null) e.preventDefault(); }}
        @drop=${(e) => { e.preventDefault(); this.#move(this.#dragged, i); this.#dragged = null; }}>
      <button type="button" class="grip icon plain" draggable="true" aria-label=${t`Move ${name}: arrow keys`} title=${name} @keydown=${key}
        @dragstart=${() => { this.#dragged = i; }} @dragend=${() => { this.#dragged = null; }}>${icon('grip-vertical')}</button>
      <input aria-label=${t`Label of ${name}`} .value=${live(f.label ?? '')} placeholder=${label(name)} title=${name} autocomplete="off" dir="auto"
        @input=${(e) => this.#changeField(i, { label: e.target.value })}>
      <select aria-label=${t`Format of ${name}`} @change=${(e) => choose(e.target.value)}>
        ${Object.entries(formats).map(([value, text]) => html`<option value=${value} .selected=${live(value === (f.format ?? ''))}>${text}</option>`)}
        ${kinds.map((c) => html`<option value=${['money', c].join(' ')} .selected=${live(f.format === 'money' && f.currency === c)}>${t`money, ${c}`}</option>`)}</select>
      <input class="cond" aria-label=${t`When ${name} stands out`} .value=${live(f.stands_out ?? '')} placeholder=${t`never stands out`} title=${t`A column, or a column compared with a number, a 'text', true or false: ${'wrong > 0'}`}
        autocomplete="off" spellcheck="false" dir="ltr" @input=${(e) => this.#changeField(i, { stands_out: e.target.value })}>
      <button type="button" class="icon plain" aria-label=${t`Fold ${name} away`} @click=${() => this.#remove(i)}>${icon('x')}</button>
      ${f.format === 'badge' ? this.#colours(f, i) : nothing}
    </li>`;
  }

  /** A badge's colours are typed as pairs; what isn't one yet is kept as text. */
  #colours(f, i) {
    const text = this.#badges[f.column] ?? Object.entries(f.badges ?? {}).map(([v, kind]) => `${v}: ${kind}`).join(', ');
    const type = (typed) => {
      this.#badges[f.column] = typed;
      const pairs = typed.split(',').map((pair) => pair.split(':').map((part) => part.trim())).filter(([v, kind]) => v && ['plain', 'good', 'warn', 'bad'].includes(kind));
      this.#changeField(i, { badges: pairs.length ? Object.fromEntries(pairs) : undefined });
    };
    return html`<input class="badges" aria-label=${t`Colours of ${f.column}`} .value=${live(text)} placeholder=${t`open: warn, paid: good, late: bad`} autocomplete="off" spellcheck="false"
      @input=${(e) => type(e.target.value)}>`;
  }

  #remove(i) {
    this.#change({ fields: this.#display.fields.filter((_, n) => n !== i) });
    document.getElementById('display-add').focus();
  }

  #adding(all, others) {
    const add = () => {
      const place = document.getElementById('display-column');
      const column = place.value.trim();
      if (!column || all.some((f) => f.column === column)) {
        place.focus();
        return;
      }
      this.#change({ fields: [...all, { column }] });
      if (place.tagName === 'INPUT') place.value = '';
      requestAnimationFrame(() => requestAnimationFrame(() => [...document.querySelectorAll('.rule')].at(-1)?.querySelector('input').focus()));
    };
    const rest = this.#display.others ?? 'folded';
    return html`<div class="bar">${this.#columns.length && !others.length ? nothing : html`<span class="adding">${others.length
        ? html`<select id="display-column" aria-label=${t`Column`}>${others.map((c) => html`<option value=${c}>${c}</option>`)}</select>`
        : html`<input id="display-column" aria-label=${t`Column`} placeholder=${t`column`} autocomplete="off" spellcheck="false">`}
        <button type="button" id="display-add" @click=${add}>${icon('plus')}${t`Add a field`}</button></span>`}
      <label class="soft small">${others.length && all.length ? plural(others.length, '{0} other column is', '{0} other columns are') : t`Other columns are`}
        <select @change=${(e) => this.#change({ others: e.target.value === 'folded' ? undefined : e.target.value })}>
          ${[['folded', t`folded under “more details”`], ['shown', t`shown, too`], ['hidden', t`not shown`]].map(([value, text]) => html`<option value=${value}
            .selected=${live(value === rest)}>${text}</option>`)}</select></label></div>`;
  }

  #card(display) {
    const rows = this.#rows;
    const row = rows[this.#row % rows.length];
    const { form, queries } = this.#view;
    const next = () => {
      this.#row++;
      this.#view.draw();
    };
    return html`<div class="head"><h2 class="minor soft">${this.#row % (rows.length || 1) ? t`Row ${(this.#row % rows.length) + 1} of the preview` : form.inbox ? t`The last item` : t`The first row of the preview`}</h2>
        ${rows.length > 1 ? html`<button type="button" class="plain" @click=${next}>${t`Next one`}</button>` : nothing}</div>
      ${row ? sample(row, display, form.text(fields.get('title')) || this.#view.name)
        : html`<div class="empty"><p>${form.inbox ? t`Once somebody has had an item, it is shown here.` : t`An item is shown here when the query’s preview has run.`}</p>
          ${form.inbox ? nothing : queries.preview.state === 'running' ? html`<p role="status">${t`The query is running.`}</p>`
            : html`<p><button type="button" @click=${() => queries.preview.run()}>${icon('play')}${t`Preview`}</button></p>`}</div>`}`;
  }
}
