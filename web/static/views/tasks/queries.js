/** A task's query and recheck: their editors, the places of mistakes in them, and the query's preview. */

import { html, nothing } from '../../lib/lit-html/lit-html.js';
import { t } from '../../lang.js';
import { Compare } from './compare.js';
import { Editor } from './editor.js';
import { changedTag } from './fields.js';
import { Preview } from './preview.js';
import { fields } from './settings.js';

/** The place in an error's text; it is shown beside it, as line and column. */
const told = /(?<=SQLSTATE \w+\))\D+(\d+)\D*$/;
const plain = (error) => error.replace(told, '');

export class Queries {
  #view;
  #editors; // by the setting's name
  #places = {}; // of mistakes, by the setting's name: {line, column}
  #withRecheck = false; // it is unfolded
  #tables; // what the query may read; loaded for a new task, or when somebody begins to write
  #starter; // makes a query to begin with
  #loading; // a promise

  /** view: the TaskView. */
  constructor(view) {
    const { app, draw: changed, signal } = view;
    this.#view = view;
    this.#editors = { query: this.#editor('query', t`Query, SQL`), recheck: this.#editor('recheck', t`Recheck, SQL`) };
    this.#editors.query.area.addEventListener('focus', () => this.#list(), { once: true });
    this.preview = new Preview({
      ask: (text, limit, options) => this.#ask(text, limit, options),
      text: () => this.#editors.query.value,
      ready: () => this.#ready(),
      timeout: () => this.#settings.query_timeout,
      given: (text) => this.#given(text),
      refused: (e, text) => this.#refused(e, text),
      changed, say: app.say, signal,
    });
    this.compare = new Compare({
      ask: (query, limit, options) => view.api.compare(view.name, { query, limit }, options),
      text: () => this.#editors.query.value,
      timeout: () => this.#settings.query_timeout,
      refused: (e, text) => this.#refused(e, text),
      changed, signal,
    });
  }

  /** Loads what helps to write a query, once. */
  async #help() {
    this.#loading ??= import('./tables.js').then(({ Tables, starter }) => {
      const { app, draw: changed } = this.#view;
      this.#starter = starter;
      this.#tables = new Tables({ api: app.api, editor: this.#editors.query, changed });
      changed();
    }).catch(() => { this.#loading = null; }); // the server is away, as the banner says: the next draw tries again
    await this.#loading;
  }

  /** Reads the tables as well. */
  async #list() {
    await this.#help();
    this.#tables?.load();
  }

  #editor(name, label) {
    const typed = (text) => {
      delete this.#places[name];
      this.#view.type(name, text);
    };
    return new Editor({ id: `set-${name}`, label, describedBy: `set-${name}-help set-${name}-error`, typed });
  }

  /** Whether the setting of that name has an editor. */
  has(name) { return name in this.#editors; }

  /** Copies the form's values into the editors. */
  fill() {
    for (const [name, editor] of Object.entries(this.#editors)) editor.value = this.#view.form.text(fields.get(name));
  }

  /** Leads into an editor, to its mistake if there is one. */
  go(name) { this.#editors[name].go(); }

  /** Marks the places of the form's errors. */
  mark() {
    const { errors } = this.#view.form;
    for (const [name, editor] of Object.entries(this.#editors)) {
      const [, position] = errors[name]?.match(told) ?? [];
      this.#places[name] = position && editor.mark(Number(position));
    }
  }

  // The preview.

  /** The settings that it runs with: the saved ones, or the typed ones of a new task. */
  get #settings() {
    const { form } = this.#view;
    const of = (name) => (form.isNew ? form.value(fields.get(name)) : form.base[name]);
    return { query_timeout: of('query_timeout'), slots: of('slots') };
  }

  #ask(query, limit, options) {
    const { api, form, name, saving } = this.#view;
    return form.isNew || saving.gone
      ? api.preview(null, { query, limit, ...this.#settings }, options)
      : api.preview(name, { query, limit }, options);
  }

  /** A new task's settings may be wrong; this leads to the first such setting. */
  #ready() {
    const { form } = this.#view;
    const wrong = form.isNew && form.wrong(['query', 'query_timeout', 'slots']);
    if (wrong) this.#view.complain(wrong);
    return !wrong;
  }

  #given(text) {
    const { form, draw } = this.#view;
    delete form.former.query;
    if (text === this.#editors.query.value) {
      delete form.errors.query;
      this.#editors.query.clear();
    }
    draw();
  }

  #refused(e, text) {
    const { form, draw } = this.#view;
    const { query } = this.#editors;
    const said = e.errors?.find((f) => f.field === 'query');
    if (!said || text !== query.value) return;
    form.errors.query = said.detail;
    this.mark();
    draw();
    const here = document.activeElement;
    if (here === document.body || here.id.startsWith('preview') || here.id.startsWith('compare') || here === query.area) query.go();
  }

  /** Puts in a query to change, which can be undone like any typing. */
  #begin() {
    const { query } = this.#editors;
    query.area.focus();
    query.insert(this.#starter());
  }

  // How it is drawn.

  /** changed: the settings that are. */
  template(changed) {
    const { form } = this.#view;
    if (form.isNew) this.#help();
    this.#withRecheck ||= form.text(fields.get('recheck')) !== '' || form.errors.recheck !== undefined; // and so it stays
    const tag = (name) => (!form.isNew && changed.some((f) => f.name === name) ? changedTag() : nothing);
    const [first] = this.preview.result?.rows ?? [];
    return html`<div class="split">
      <div class="stack">
        <section class="paper stack" aria-labelledby="query-title">
          <div class="head"><h2 id="query-title">${t`Query`}</h2>${tag('query')}</div>
          ${this.#sql('query')}
          ${this.#tables?.offers() ?? nothing}
          ${form.isNew && this.#starter && !form.text(fields.get('query')).trim() ? html`<p><button type="button" id="starter"
            @click=${() => this.#begin()}>${t`Begin with an example`}</button></p>` : nothing}
          <p class="soft small sql-keys"><span>${t`${html`<kbd>${t`Tab`}</kbd>`} leaves the editor`}</span>
            <span>${t`${html`<kbd>${t`Ctrl+]`}</kbd>`} indents, ${html`<kbd>${t`Ctrl+[`}</kbd>`} outdents`}</span></p>
        </section>
        ${this.preview.template()}
        ${form.isNew || this.#view.saving.gone ? nothing : this.compare.template(form.base.version)}
      </div>
      <aside class="stack" aria-label=${t`Beside the query`}>
        ${first ? html`<h2 class="minor soft">${t`What a worker sees of the first row`}</h2>
          ${this.preview.sample(first, this.#view.form.value(fields.get('display')), form.text(fields.get('title')) || this.#view.name)}` : nothing}
        <details class="tables" @toggle=${(e) => { if (e.target.open) this.#list(); }}>
          <summary>${t`Tables that the query may read`}</summary>
          ${this.#tables?.template(!form.text(fields.get('query')).trim()) ?? nothing}
        </details>
        <details class="recheck" ?open=${this.#withRecheck}>
          <summary>${t`Recheck`} ${tag('recheck')}</summary>
          ${this.#sql('recheck')}
        </details>
      </aside>
    </div>`;
  }

  #sql(name) {
    const { form } = this.#view;
    const field = fields.get(name);
    const error = form.error(field);
    const place = form.errors[name] && this.#places[name];
    const former = form.former[name];
    return html`<div class="stack sql-of"><p class="soft small" id=${`set-${name}-help`}>${field.help}</p>
      ${this.#editors[name].element}
      <p class="error" id=${`set-${name}-error`} role="alert" dir="auto">${plain(error)}</p>
      ${place ? html`<p><button type="button" class="to-place"
          @click=${() => this.go(name)}>${t`Go to line ${place.line}, column ${place.column}`}</button></p>` : nothing}
      ${!error && former ? html`<p class="soft small former-error" dir="auto">${t`Before you changed it: ${plain(former)}`}</p>` : nothing}</div>`;
  }
}

