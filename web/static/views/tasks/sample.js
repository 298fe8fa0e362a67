/** An item of the preview as people see it at their desk. */

import { html, nothing } from '../../lib/lit-html/lit-html.js';
import { t } from '../../lang.js';
import { now } from '../../now.js';
import { icon, span } from '../../parts.js';
import { shown } from '../desk/display.js';

const isLong = (text) => text.length > 20;
const marks = { good: 'ok', warn: 'half', bad: 'fifth', plain: 'none' };

/** row: of a preview, or pushed; display: as it is typed; task: its title. */
export function sample(row, display, task) {
  const { title, link, fields } = shown(display, row.item, row.details);
  const first = fields.filter((f) => !f.folded || f.strong);
  const folded = fields.length - first.length;
  const strong = (f) => f.strong || f.colour === 'bad';
  const fact = (f) => html`<div class=${[strong(f) && 'stands', isLong(f.text) && 'long'].filter(Boolean).join(' ') || nothing}
      data-time=${strong(f) ? 'fifth' : nothing}><dt dir="auto">${f.label}</dt><dd dir="auto">${
    f.colour ? html`<span class="tag" data-time=${marks[f.colour] ?? 'none'}>${f.text}</span>` : f.text}</dd></div>`;
  return html`<section class="paper live-card" aria-label=${title} data-time=${row.deadline ? urgency(row.deadline) : nothing}>
    <p class="soft small" dir="auto">${task}</p>
    <h3 dir="auto">${title}${link ? html` <a class="open" href=${link} target="_blank" rel="noopener noreferrer" aria-label=${t`Open`}>${icon('external-link')}</a>` : nothing}</h3>
    ${row.deadline ? html`<p class="time">${due(row.deadline)}</p>` : nothing}
    <dl class="facts">${first.map(fact)}</dl>
    ${folded ? html`<p class="soft small">${t`${folded} more, folded`}</p>` : nothing}
  </section>`;
}

const left = (deadline) => Date.parse(deadline) - now();
const urgency = (deadline) => (left(deadline) <= 0 ? 'fifth' : left(deadline) < 3_600_000 ? 'half' : 'ok');
const due = (deadline) => (left(deadline) <= 0 ? t`Late for ${span(-left(deadline))}` : t`Due in ${span(left(deadline))}`);
