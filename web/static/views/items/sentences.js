/** The items view's sentences. Everything here returns templates, or text. */

import { html, nothing } from '../../lib/lit-html/lit-html.js';
import { locale, t } from '../../lang.js';
import { now } from '../../now.js';
import { span } from '../../parts.js';
import { fully } from '../../words.js';

const hour = new Intl.DateTimeFormat(locale, { timeStyle: 'short' });
const day = new Intl.DateTimeFormat(locale, { dateStyle: 'medium', timeStyle: 'short' });

/** How many days from today a time is. */
function near(time) {
  const midnight = (at) => new Date(at).setHours(0, 0, 0, 0);
  return Math.round((midnight(time) - midnight(now())) / 86_400_000);
}

/** A time within a sentence: 9:00 AM, tomorrow 9:00 AM, or with its date; exact on hover. */
export function moment(iso) {
  const then = new Date(iso);
  const text = { '-1': t`yesterday ${hour.format(then)}`, 0: hour.format(then), 1: t`tomorrow ${hour.format(then)}` }[near(then)] ?? day.format(then);
  return html`<time datetime=${iso} title=${fully(then)}>${text}</time>`;
}

/** The same, with what comes before it: at 9:00 AM, tomorrow 9:00 AM, on a date. */
function at(iso) {
  const days = near(new Date(iso));
  if (days === 0) return t`at ${moment(iso)}`;
  return Math.abs(days) === 1 ? moment(iso) : t`on ${moment(iso)}##date`;
}

/** A name within a sentence, whatever its direction. */
export const name = (text) => html`<bdi>${text}</bdi>`;

/** Oliver, Tracy and 2 more. */
export function names(users) {
  const all = [...new Set(users)];
  const shown = all.slice(0, 3);
  const more = all.length - shown.length;
  const between = (i) => (i === 0 ? '' : i === shown.length - 1 && !more ? ` ${t`and`} ` : ', ');
  return html`${shown.map((user, i) => html`${between(i)}${name(user)}`)}${more ? ` ${t`and ${more} more`}` : nothing}`;
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
    case 'available': return e.barred.length ? t`It can be handed out now, but not to ${names(e.barred.map((b) => b.user))}.` : t`It can be handed out now.`;
    case 'held': return e.until ? t`${holding(e)}, and it comes back ${at(e.until)} unless the lease is extended.` : html`${holding(e)}.`;
    case 'never': return never(e);
    case 'put_off': return notBefore(until, whoPutOff(e));
    case 'not_due': return t`Not handed out before ${until}: it was pushed for then.`;
    case 'group_held': return e.until
      ? t`Not handed out while another item of its exclusive group ${name(e.exclusive)} is held, until ${until} unless that lease is extended.`
      : t`Not handed out while another item of its exclusive group ${name(e.exclusive)} is held.`;
    case 'paused': return t`Not handed out: the task is paused, until a manager resumes it.`;
    case 'next_run': return e.until ? t`Not handed out yet: the next run finds it, which comes after ${until}.` : t`Not handed out yet: the next run finds it.`;
    case 'recheck': return html`${t`Not handed out: the task’s recheck does not return it any more.`}${stillHeld(e)}`;
    case 'no_match': return e.source === 'inbox'
      ? html`${t`Not handed out: it is not in the inbox. It was never pushed, or it is done.`}${stillHeld(e)}`
      : html`${t`Not handed out: the task’s query does not give it.`}${stillHeld(e)}`;
  }
  return t`Not handed out: ${e.text}`;
}

function holding({ held, slots }) {
  if (slots > 1) return t`All its ${slots} places are taken, by ${names(held.map((w) => w.user))}`;
  const who = names(held.map((w) => w.user));
  const since = moment(held[0].assigned_at);
  return held.length > 1 ? t`${who} have had it since ${since}` : t`${who} has had it since ${since}`;
}

const stillHeld = ({ held }) => (held.length ? html` ${t`${have(held)} all the same.`}` : nothing);

function have(held) {
  const who = names(held.map((w) => w.user));
  return held.length > 1 ? t`${who} have it` : t`${who} has it`;
}

function never({ history }) {
  const w = history.find(isLast);
  if (!w) return t`Never handed out again, until a manager puts it back.`;
  if (w.exhausted) return t`Never handed out again: its attempts are used up, the last by ${name(w.user)} ${at(w.closed_at)}.`;
  return t`Never handed out again: ${name(w.closed_by ?? w.user)} said so ${at(w.closed_at)}.`;
}

function whoPutOff({ history, until }) {
  const w = history.find((row) => row.available_at === until);
  if (!w) return null;
  if (w.state === 'failed') return t`${name(w.user)} failed with it, which was attempt ${w.attempt}`;
  return t`${name(w.closed_by ?? w.user)} returned it, and put it off ${span(putOff(w))}`;
}

const notBefore = (until, why) => (why ? t`Not handed out before ${until}: ${why}.` : t`Not handed out before ${until}.`);

/** The verdict by the history alone; newest row first. */
export function lastKnown(rows) {
  const held = rows.filter((w) => w.state === 'held');
  if (held.length) return { kind: 'busy', line: html`${holding({ held, slots: 1 })}.` };
  const [last] = rows;
  if (!last) return { kind: '', line: t`Not checked yet.` };
  const { state, available_at: from, closed_at: closed } = last;
  const who = name(last.closed_by ?? last.user);
  switch (state) {
    case 'completed': return { kind: 'good', line: t`${who} completed it ${at(closed)}.` };
    case 'never':
      if (isLast(last)) return { kind: 'bad', line: never({ history: rows }) };
      return { kind: 'good', line: t`It was put back ${at(from)}, and nobody has had it since.` };
    case 'returned': case 'failed': {
      if (Date.parse(from) > now()) {
        const why = whoPutOff({ history: rows, until: from });
        return { kind: 'warn', line: notBefore(moment(from), why) };
      }
      return { kind: '', line: state === 'failed' ? t`${who} failed with it ${at(closed)}; nobody has had it since.` : t`${who} returned it ${at(closed)}; nobody has had it since.` };
    }
    case 'expired':
      return { kind: '', line: t`${name(last.user)}’s time ran out ${at(closed)}; nobody has had it since.` };
  }
  return { kind: '', line: t`It was taken from ${name(last.user)} ${at(closed)}.` };
}

/** States of work as tags: [data-time, word]. */
const states = {
  held: ['now', t`held`], completed: ['ok', t`completed`], returned: ['none', t`returned`], never: ['fifth', t`never again`],
  failed: ['fifth', t`failed`], expired: ['half', t`time ran out`], reassigned: ['none', t`given to another`],
};

export const badge = (w) => {
  const [time, word] = states[w.state] ?? ['none', w.state];
  return html`<span class="tag" data-time=${time}>${word}</span>`;
};

/** How work ended, as a sentence about its holder. */
export function became(w) {
  const by = w.closed_by && w.closed_by !== w.user ? name(w.closed_by) : null;
  switch (w.state) {
    case 'held': return w.lease_expires_at ? t`The lease lasts until ${moment(w.lease_expires_at)}.` : nothing;
    case 'completed': return by ? t`Completed by ${by}.` : t`Completed.`;
    case 'returned': {
      const when = putOff(w) >= 1000 ? t`put off ${span(putOff(w))}, until ${moment(w.available_at)}` : t`to come back at once`;
      return html`${by ? t`Returned by ${by}` : t`Returned`}, ${when}${w.to_others ? `, ${t`to others only`}` : nothing}.`;
    }
    case 'never': {
      const how = w.exhausted ? t`The last attempt; never to be handed out again.` : by ? t`Set to never again by ${by}.` : t`Set to never again.`;
      return w.available_at ? html`${how} ${t`Put back ${at(w.available_at)}.`}` : how;
    }
    case 'failed': return w.available_at ? t`Attempt ${w.attempt} failed; to come back ${at(w.available_at)}.` : t`Attempt ${w.attempt} failed.`;
    case 'expired': return t`The lease ran out, and it went back.`;
    case 'reassigned': return by ? t`Given to somebody else by ${by}.` : t`Given to somebody else.`;
  }
  return nothing;
}

const order = new Intl.PluralRules('en', { type: 'ordinal' });

/** 1st, 2nd, 3rd, 4th. */
export const nth = (n) => ({ one: t`${n}st`, two: t`${n}nd`, few: t`${n}rd`, other: t`${n}th` }[order.select(n)]);
