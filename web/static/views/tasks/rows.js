/** A setting that is a list of rows, such as the outcomes of a task: a table that is edited where it stands. */

import { html, nothing } from '../../lib/lit-html/lit-html.js';
import { live } from '../../lib/lit-html/directives/live.js';
import { t } from '../../lang.js';
import { icon } from '../../parts.js';

/** field: with columns {name, label, choices?, hint?, from?, as?, says?}; a: {id, text, now(), typed()}, where text is a list of rows of cells. */
export function rows(field, a) {
  const { columns } = field;
  const change = (i, j, text) => a.typed(a.now().map((row, n) => (n === i ? row.with(j, text) : row)));
  const add = () => {
    const n = a.now().length;
    a.typed([...a.now(), columns.map((c) => c.choices?.[0][0] ?? '')]);
    requestAnimationFrame(() => requestAnimationFrame(() => document.getElementById(`${a.id}-${n}-0`)?.focus()));
  };
  const remove = (i) => {
    a.typed(a.now().filter((_, n) => n !== i));
    requestAnimationFrame(() => document.getElementById(`${a.id}-add`).focus());
  };
  const cell = (c, i, j, text) => {
    const id = `${a.id}-${i}-${j}`;
    const name = t`${c.label} of row ${i + 1}`;
    return c.choices
      ? html`<select id=${id} aria-label=${name} @change=${(e) => change(i, j, e.target.value)}>${c.choices.map(([value, said]) =>
        html`<option value=${value} .selected=${live(value === text)}>${said}</option>`)}</select>`
      : html`<input id=${id} aria-label=${name} .value=${live(text)} placeholder=${c.hint ?? nothing} autocomplete="off" dir="auto"
          @input=${(e) => change(i, j, e.target.value)}>`;
  };
  return html`${a.text.length ? html`<div class="scroll rows-of"><table id=${a.id} aria-describedby=${a.describedBy} tabindex="-1">
      <thead><tr><th scope="col"><span class="sr">${t`Row`}</span></th>${columns.map((c) => html`<th scope="col">${c.label}</th>`)}<th scope="col"><span class="sr">${t`Remove##row`}</span></th></tr></thead>
      <tbody>${a.text.map((row, i) => html`<tr><th scope="row"><kbd>${i + 1}</kbd></th>${columns.map((c, j) => html`<td>${cell(c, i, j, row[j])}</td>`)}
        <td><button type="button" class="icon plain" aria-label=${t`Remove row ${i + 1}`} @click=${() => remove(i)}>${icon('x')}</button></td></tr>`)}</tbody>
    </table></div>` : nothing}
    <p><button type="button" id=${`${a.id}-add`} ?hidden=${a.text.length >= field.most} @click=${add}>${icon('plus')}${field.add}</button></p>`;
}
