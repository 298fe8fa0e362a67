/** My day: a line of hours with a mark for each thing done, a pin for now, and flags for what is due or comes back. */

import { html, nothing, svg } from '../../lib/lit-html/lit-html.js';
import { locale, plural, t } from '../../lang.js';
import { now } from '../../now.js';
import { clock } from '../../words.js';
import { held } from './words.js';

const hour = 3_600_000;
const flags = 3;
const letter = 6.8; // px, of a label
const hours = new Intl.DateTimeFormat(locale, { hour: 'numeric' });
const { hour12 } = hours.resolvedOptions();
const label = (at) => (hour12 ? hours.format(at) : String(new Date(at).getHours()));

/** The start of today, for the call that reads the day. */
export const midnight = () => new Date(now()).setHours(0, 0, 0, 0);

/** On which side of each mark its label stands, the left one first, so that none hides another; undefined: it has room on neither. */
function beside(labels, length) {
  let taken = 0;
  return labels.map(({ at, wide }, i) => {
    const next = labels[i + 1];
    const fits = { end: at - wide >= taken, start: at >= taken && at + wide <= length && (!next || at + wide <= next.at) };
    const side = ['end', 'start'].find((s) => fits[s]);
    if (side) taken = side === 'end' ? at + letter : at + wide + letter;
    return side;
  });
}

/**
 * day: as GET /day has it, or what is known without it; coming: [{at, time, name}], flags: time is as data-time has it. The line reaches
 * from the first hour in which something was done, at most eight hours ago, to at least three hours from now.
 */
export function day({ done, ended, left, late, tasks }, coming) {
  const at = now();
  const times = ended.map((e) => Date.parse(e.at)).filter((time) => time >= midnight());
  const [first, last] = [Math.min(at - hour, ...times.filter((time) => time > at - 10 * hour)), at + 3 * hour];
  const from = new Date(first).setMinutes(0, 0, 0);
  const soon = coming.filter((c) => c.at > at && c.at < from + 14 * hour).sort((a, b) => a.at - b.at).slice(0, flags);
  const until = new Date(Math.max(last, ...soon.map((c) => c.at)) + hour - 1).setMinutes(0, 0, 0);
  const x = (time) => `${(Math.min(1, Math.max(0, (time - from) / (until - from))) * 100).toFixed(2)}%`;
  const ticks = Array.from({ length: Math.round((until - from) / hour) + 1 }, (_, i) => from + i * hour);
  const marks = times.filter((time) => time >= from);
  const worked = marks.length > 1 ? (at - Math.min(...marks)) / marks.length : null;
  const pace = worked >= 60_000 ? t`one every ${held(worked)}` : worked ? t`more than one a minute` : '';
  const length = Math.max(300, Math.min(innerWidth, 1600) - 420); // px: the line's, about, since measuring it would lay out the page
  const sides = beside(soon.map((c) => ({ at: length * (c.at - from) / (until - from), wide: c.name.length * letter })), length);
  return html`<section class="day" aria-label=${t`My day`}>
    <p><b id="done-today">${done.toLocaleString(locale)}</b> ${t`done today`}<br><small class="soft">${pace}&nbsp;</small></p>
    <svg role="img" aria-label=${[t`${plural(done, '{0} item', '{0} items')} done since ${clock(from)}.`, ...soon.map((c) => `${c.name}: ${clock(c.at)}.`)].join(' ')}>
      ${ticks.map((time, i) => svg`<line class="tick" x1=${x(time)} x2=${x(time)} y1="14" y2="34"></line>
        ${ticks.length > 9 && i % 2 ? nothing : svg`<text x=${x(time)} y="50" text-anchor=${i === 0 ? 'start' : i === ticks.length - 1 ? 'end' : 'middle'}>${label(time)}</text>`}`)}
      <line class="base" x1="0" x2="100%" y1="34" y2="34"></line>
      ${marks.map((time) => svg`<rect class="done" x=${x(time)} y="18" width=${marks.length > 30 ? 3 : 7} height="16" rx="2"></rect>`)}
      ${soon.map((c, i) => svg`<g data-time=${c.time}><rect class="mark" x=${x(c.at)} y="14" width="3" height="20"></rect>
        ${sides[i] ? svg`<text class="due" x=${x(c.at)} y="10" text-anchor=${sides[i]}>${c.name}</text>` : nothing}</g>`)}
      <line class="now" x1=${x(at)} x2=${x(at)} y1="12" y2="38"></line><circle class="now-dot" cx=${x(at)} cy="12" r="4"></circle>
    </svg>
    <p class="num"><b>${left.toLocaleString(locale)}</b> ${t`left`}<br><small class="soft">${plural(tasks, 'in {0} task', 'in {0} tasks')}${late ? t`, ${late} of them late` : ''}</small></p>
  </section>`;
}
