/** The items view's sentences. Everything here returns templates, or text. */

import { html, nothing } from '../../lib/lit-html/lit-html.js';
import { span } from '../../parts.js';
import { fully } from '../../words.js';

const hour = new Intl.DateTimeFormat(undefined, { timeStyle: 'short' });
const day = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeStyle: 'short' });

/** How far from today a time is, in words: '' is today, undefined further than a day. */
function near(time) {
  const midnight = (t) => new Date(t).setHours(0, 0, 0, 0);
  const days = Math.round((midnight(time) - midnight(Date.now())) / 86_400_000);
  return { '-1': 'yesterday ', 0: '', 1: 'tomorrow ' }[days];
}

/** A time within a sentence: 9:00 AM, tomorrow 9:00 AM, or with its date; exact on hover. */
export function moment(iso) {
  const then = new Date(iso);
  const word = near(then);
  const text = word === undefined ? day.format(then) : word + hour.format(then);
  return html`<time datetime=${iso} title=${fully(then)}>${text}</time>`;
}

/** The same, with what comes before it: at 9:00 AM, tomorrow 9:00 AM, on a date. */
const at = (iso) => html`${{ '': 'at ', undefined: 'on ' }[near(new Date(iso))] ?? ''}${moment(iso)}`;

/** A name within a sentence, whatever its direction. */
export const name = (text) => html`<bdi>${text}</bdi>`;

/** Oliver, Tracy and 2 more. */
export function names(users) {
  const all = [...new Set(users)];
  const shown = all.slice(0, 3);
  const more = all.length - shown.length;
  const between = (i) => (i === 0 ? '' : i === shown.length - 1 && !more ? ' and ' : ', ');
  return html`${shown.map((user, i) => html`${between(i)}${name(user)}`)}${more ? ` and ${more} more` : nothing}`;
}

const putOff = (w) => Date.parse(w.available_at) - Date.parse(w.closed_at); // ms
const isLast = (w) => w.state === 'never' && !w.available_at; // and was not redriven

/** Of verdicts; all others are 'bad'. */
const kinds = { available: 'good', held: 'busy', put_off: 'warn', not_due: 'warn', group_held: 'warn', next_run: 'warn' };

/**
 * Why an item is or is not handed out, in a line: {kind, line}, by what explain answered. kind: 'good', if somebody can have
 * it; 'busy', if somebody has; 'warn', if it comes back by itself; 'bad', if it does not.
 */
export const verdict = (e) => ({ kind: kinds[e.why] ?? 'bad', line: reason(e) });

function reason(e) {
  const until = e.until ? moment(e.until) : nothing;
  switch (e.why) {
    case 'available': return html`It can be handed out now${e.barred.length
      ? html`, but not to ${names(e.barred.map((b) => b.user))}` : nothing}.`;
    case 'held': return html`${holding(e)}${e.until
      ? html`, and it comes back ${at(e.until)} unless the lease is extended` : nothing}.`;
    case 'never': return never(e);
    case 'put_off': return html`Not handed out before ${until}${whoPutOff(e)}.`;
    case 'not_due': return html`Not handed out before ${until}: it was pushed for then.`;
    case 'group_held': return html`Not handed out while another item of its exclusive group ${name(e.exclusive)} is
      held${e.until ? html`, until ${until} unless that lease is extended` : nothing}.`;
    case 'paused': return 'Not handed out: the task is paused, until a manager resumes it.';
    case 'next_run': return html`Not handed out yet: the next run finds it${e.until
      ? html`, which comes after ${until}` : nothing}.`;
    case 'recheck': return html`Not handed out: the task’s recheck does not return it any more.${stillHeld(e)}`;
    case 'no_match': return e.source === 'inbox'
      ? html`Not handed out: it is not in the inbox. It was never pushed, or it is done.${stillHeld(e)}`
      : html`Not handed out: the task’s query does not give it.${stillHeld(e)}`;
  }
  return `Not handed out: ${e.text}`;
}

function holding({ held, slots }) {
  if (slots > 1) return html`All its ${slots} places are taken, by ${names(held.map((w) => w.user))}`;
  return html`${have(held)}, since ${moment(held[0].assigned_at)}`;
}

const stillHeld = ({ held }) => (held.length ? html` ${have(held)} all the same.` : nothing);

const have = (held) => html`${names(held.map((w) => w.user))} ${held.length > 1 ? 'have' : 'has'} it`;

function never({ history }) {
  const w = history.find(isLast);
  if (!w) return 'Never handed out again, until a manager puts it back.';
  if (w.exhausted) return html`Never handed out again: its attempts are used up, the last by ${name(w.user)} ${at(w.closed_at)}.`;
  return html`Never handed out again: ${name(w.closed_by ?? w.user)} said so ${at(w.closed_at)}.`;
}

function whoPutOff({ history, until }) {
  const w = history.find((row) => row.available_at === until);
  if (!w) return nothing;
  if (w.state === 'failed') return html`: ${name(w.user)} failed with it, which was attempt ${w.attempt}`;
  return html`: ${name(w.closed_by ?? w.user)} returned it, and put it off ${span(putOff(w))}`;
}

/** The verdict by the history alone; newest row first, now by the server's clock. */
export function lastKnown(rows, now) {
  const held = rows.filter((w) => w.state === 'held');
  if (held.length) return { kind: 'busy', line: html`${holding({ held, slots: 1 })}.` };
  const [last] = rows;
  if (!last) return { kind: '', line: 'Not checked yet.' };
  const { state, available_at: from, closed_at: closed } = last;
  const who = name(last.closed_by ?? last.user);
  switch (state) {
    case 'completed': return { kind: 'good', line: html`${who} completed it ${at(closed)}.` };
    case 'never':
      if (isLast(last)) return { kind: 'bad', line: never({ history: rows }) };
      return { kind: 'good', line: html`It was put back ${at(from)}, and nobody has had it since.` };
    case 'returned': case 'failed': {
      if (Date.parse(from) > now) {
        const why = whoPutOff({ history: rows, until: from });
        return { kind: 'warn', line: html`Not handed out before ${moment(from)}${why}.` };
      }
      const did = state === 'failed' ? 'failed with' : 'returned';
      return { kind: '', line: html`${who} ${did} it ${at(closed)}; nobody has had it since.` };
    }
    case 'expired':
      return { kind: '', line: html`${name(last.user)}’s time ran out ${at(closed)}; nobody has had it since.` };
  }
  return { kind: '', line: html`It was taken from ${name(last.user)} ${at(closed)}.` };
}

/** States of work as badges: [kind, word]. */
const states = {
  held: ['busy', 'held'], completed: ['good', 'completed'], returned: ['', 'returned'], never: ['bad', 'never again'],
  failed: ['bad', 'failed'], expired: ['warn', 'time ran out'], reassigned: ['', 'given to another'],
};

export const badge = (w) => {
  const [kind, word] = states[w.state] ?? ['', w.state];
  return html`<span class="badge" data-kind=${kind}>${word}</span>`;
};

/** How work ended, as a sentence about its holder. */
export function became(w) {
  const by = w.closed_by && w.closed_by !== w.user ? html` by ${name(w.closed_by)}` : nothing;
  switch (w.state) {
    case 'held': return w.lease_expires_at ? html`The lease lasts until ${moment(w.lease_expires_at)}.` : nothing;
    case 'completed': return html`Completed${by}.`;
    case 'returned': return html`Returned${by}${putOff(w) >= 1000
      ? html`, put off ${span(putOff(w))}, until ${moment(w.available_at)}`
      : ', to come back at once'}${w.to_others ? ', to others only' : nothing}.`;
    case 'never': return html`${w.exhausted
      ? 'The last attempt; never to be handed out again'
      : html`Set to never again${by}`}${w.available_at ? html`. Put back ${at(w.available_at)}` : nothing}.`;
    case 'failed': return html`Attempt ${w.attempt} failed${w.available_at
      ? html`; to come back ${at(w.available_at)}` : nothing}.`;
    case 'expired': return html`The lease ran out, and it went back.`;
    case 'reassigned': return html`Given to somebody else${by}.`;
  }
  return nothing;
}

const order = new Intl.PluralRules('en', { type: 'ordinal' });

/** 1st, 2nd, 3rd, 4th. */
export const nth = (n) => n + { one: 'st', two: 'nd', few: 'rd', other: 'th' }[order.select(n)];
