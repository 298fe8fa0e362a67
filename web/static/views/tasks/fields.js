/** The settings' fields, as they are drawn. */

import { html, nothing } from '../../lib/lit-html/lit-html.js';
import { live } from '../../lib/lit-html/directives/live.js';
import { t } from '../../lang.js';
import { icon } from '../../parts.js';
import { rows } from './rows.js';
import { added, defaults, valueText } from './settings.js';

/** Says that a setting is changed and not saved. */
export const changedTag = () => html` <span class="tag" data-time="now">${t`changed`}</span>`;

/**
 * A setting's field. form: the Form that it belongs to, and which of its fields are changed; typed(name, text) is called with
 * what is typed. others: names of all tasks.
 */
export function fieldOf(field, form, fieldsChanged, typed, others) {
  const id = `set-${field.name}`;
  const error = form.error(field);
  const changed = !form.isNew && fieldsChanged.includes(field);
  const attributes = {
    id, describedBy: `${id}-help ${id}-error`, invalid: error ? 'true' : 'false', text: form.text(field),
    now: () => form.text(field), typed: (text) => typed(field.name, text),
  };
  const label = html`${field.label}${changed ? changedTag() : nothing}`;
  return html`<div class="field ${field.wide || field.kind === 'rows' ? 'wide' : ''}" data-field=${field.name}>
    ${field.kind === 'rows' ? html`<h3>${label}</h3>` : html`<label for=${id}>${label}</label>`}
    ${kinds[field.kind](field, attributes, others)}
    <small id=${`${id}-help`}>${field.help} ${helpOf(field)}${changed
      ? html` <bdi>${t`It was ${valueText(field, form.base[field.name])}.`}</bdi>` : nothing}</small>
    <p class="error" id=${`${id}-error`} dir="auto">${error}</p>
  </div>`;
}

function helpOf(field) {
  if (field.kind === 'list') return t`None: ${field.none}.`;
  if (field.none) return t`Empty: ${field.none}.`;
  return ['count', 'duration'].includes(field.kind) ? t`Default: ${String(defaults[field.name])}.` : '';
}

const kinds = { line, name: line, lines, count: short, duration: short, list, json: lines, choice, truth: choice, rows };

function line(field, a) {
  return html`<input id=${a.id} .value=${live(a.text)} autocomplete="off" spellcheck=${field.kind === 'line'}
    dir=${field.kind === 'name' ? 'ltr' : 'auto'} aria-describedby=${a.describedBy} aria-invalid=${a.invalid}
    @input=${(e) => a.typed(e.target.value)}>`;
}

function choice(field, a) {
  return html`<select id=${a.id} aria-describedby=${a.describedBy} @change=${(e) => a.typed(e.target.value)}>${field.choices.map(([value, text]) =>
    html`<option value=${value} .selected=${live(value === a.text)}>${text}</option>`)}</select>`;
}

function lines(field, a) {
  const code = field.kind === 'json';
  return html`<textarea id=${a.id} class=${code ? 'code' : ''} rows=${Math.min(16, Math.max(2, a.text.split('\n').length))} .value=${live(a.text)}
    dir=${code ? 'ltr' : 'auto'} spellcheck=${!code} aria-describedby=${a.describedBy}
    aria-invalid=${a.invalid} @input=${(e) => a.typed(e.target.value)}></textarea>`;
}

function short(field, a) {
  return html`<input class="short" id=${a.id} .value=${live(a.text)} autocomplete="off" spellcheck="false"
    inputmode=${field.kind === 'count' ? 'numeric' : nothing} placeholder=${field.none ?? nothing}
    aria-describedby=${a.describedBy} aria-invalid=${a.invalid} @input=${(e) => a.typed(e.target.value)}>`;
}

/** An entry that is being added counts when the task is saved. Input may not be drawn yet: a.now() has it. */
function list(field, a, others) {
  const { list: there, adding } = a.text;
  const type = (change) => {
    a.typed({ ...a.now(), ...change(a.now()) });
    document.getElementById(a.id).focus();
  };
  const add = () => type((now) => ({ list: added(now.list, now.adding), adding: '' }));
  const takeOut = (v) => type((now) => ({ list: now.list.filter((o) => o !== v) }));
  const key = (e) => {
    if (e.key !== 'Enter' || e.isComposing) return;
    e.preventDefault();
    add();
  };
  const chip = (v) => html`<li><bdi>${v}</bdi><button type="button" class="icon plain" aria-label=${t`Take out ${v}`}
    @click=${() => takeOut(v)}>${icon('x')}</button></li>`;
  const isTask = field.one === 'task';
  return html`${there.length ? html`<ul class="chips">${there.map(chip)}</ul>` : nothing}
    <span class="adding"><input id=${a.id} .value=${live(adding)} autocomplete="off" dir="auto"
        list=${isTask ? 'all-tasks' : nothing} placeholder=${isTask ? t`Add a task` : t`Add a group`}
        aria-describedby=${a.describedBy} aria-invalid=${a.invalid}
        @input=${(e) => a.typed({ ...a.now(), adding: e.target.value })} @keydown=${key}><button
          type="button" @click=${add}>${t`Add`}</button></span>
    ${isTask ? html`<datalist id="all-tasks">${others.filter((n) => !there.includes(n)).map((n) => html`<option
      value=${n}></option>`)}</datalist>` : nothing}`;
}
