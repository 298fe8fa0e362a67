/** How the desk words things. Everything here returns text, never markup. */

import { locale, plural, t } from '../../lang.js';
import { now } from '../../now.js';
import { clock, states } from '../../words.js';

const units = { h: 3_600_000, m: 60_000, s: 1000, ms: 1 };

/** A duration such as "90s" or "24h" in milliseconds; 0 for none. */
export function milliseconds(duration) {
  const parts = [...(duration ?? '').matchAll(/([\d.]+)(h|ms|m|s)/g)];
  return parts.reduce((sum, [, n, unit]) => sum + n * units[unit], 0);
}

/** How long something has been held, without seconds. */
export function held(ms) {
  const m = Math.floor(ms / 60_000);
  if (m < 1) return t`less than 1 min`;
  if (m < 60) return t`${m} min`;
  const h = Math.floor(m / 60);
  if (h < 48) return h < 10 && m % 60 ? t`${h} h ${m % 60} min` : t`${h} h`;
  return plural(Math.floor(h / 24), '{0} day', '{0} days');
}

/** The rest of a wait. */
export function about(ms) {
  const s = Math.ceil(ms / 1000);
  if (s <= 0) return t`This takes longer than usual.`;
  return s < 90 ? t`About ${s} s more.` : t`About ${Math.round(s / 60)} min more.`;
}

/** How long a query has run, of how long it usually takes, null if that is unknown. Its digits keep their places. */
export function ran(ms, usual) {
  const inSeconds = Math.max(ms, usual ?? 0) < 100_000;
  const unit = inSeconds ? 1000 : 60_000;
  const whole = String(usual === null ? '' : Math.max(1, Math.round(usual / unit)));
  const n = String(Math.floor(ms / unit)).padStart(whole.length, '\u2007');
  if (!whole) return inSeconds ? t`${n} s` : t`${n} min`;
  return inSeconds ? t`${n} s of ${whole}` : t`${n} min of ${whole}`;
}

const items = (n) => plural(n, '{0} item', '{0} items');

/** So many of what a task's display calls its items. */
export const things = (n, display) => (display?.one ? `${n.toLocaleString(locale)} ${n === 1 ? display.one : display.many}` : items(n));

/** Says how many items are on their way to the pipeline. ms: until they should be there; null: nobody knows. */
export function coming(n, display, ms) {
  const what = things(n, display);
  const s = ms === null ? 0 : Math.ceil(ms / 1000);
  if (s <= 0) return plural(n, '{1} is coming', '{1} are coming', what);
  return s < 90 ? plural(n, '{1} is coming, about {2} s', '{1} are coming, about {2} s', what, s)
    : plural(n, '{1} is coming, about {2} min', '{1} are coming, about {2} min', what, Math.round(s / 60));
}

/** Says how many items have arrived. */
export const arrived = (n, display) => t`${things(n, display)} arrived`;

/** A lease that was renewed by hand. */
export const keptUntil = (iso) => t`Kept until ${clock(iso)}`;

/** A task's activity. */
export function counts({ waiting, held: out, shelf }) {
  return [
    shelf ? t`${shelf} ready at once` : '',
    waiting ? plural(waiting, '{0} person waiting', '{0} people waiting') : t`nobody waiting`,
    out ? t`${items(out)} held` : t`nothing held`,
  ].filter(Boolean).join(' · ');
}

const nothing = {
  no_match: t`Nothing matches this task now. Ask again later, or wait for new items.`,
  all_held: t`Everything that matches is held by others or put off. Ask again later, or wait until an item is free.`,
  held_too: t`Everything that matches is held by you or others, or put off. Ask again later, or wait until an item is free.`,
  paused: t`A manager has paused this task. Nothing is handed out until it goes on; you can wait for that.`,
  away: t`You are away, and get no work. Press “I’m back” first.`,
  rules: t`There is work, but none that you may have: you returned it, or the task’s rules leave it to others. Try another task.`,
};

/** What a user holds who may hold no more. all: {open, most} over all tasks, if that limit is the one. */
function atLimit({ max_open: limit, display }, all) {
  if (all) return t`You hold ${all.open} of ${all.most}, over all tasks.`;
  if (!limit) return t`You hold as many items of this task as you may.`;
  return t`You hold ${things(limit, display)} of this task, and may hold no more.`;
}

/** What a request got that got less than it asked for, and why. */
function less({ wanted, reason }, what, task, all) {
  if (reason === 'at_limit') return `${t`You got ${what}.`} ${atLimit(task, all)}`;
  return reason === 'rules' ? t`You got ${what} of the ${wanted} that you asked for: the task’s rules let you have no more.`
    : t`You got ${what} of the ${wanted} that you asked for: there were no more.`;
}

/**
 * How a request ended, and what the user can do. task: the request's, as far as the page knows it; holds: how many of its items
 * the user holds; all: as in atLimit.
 */
export function outcome(request, task = {}, holds = 0, all = null) {
  const what = things(request.assigned, task.display);
  switch (request.state) {
    case 'assigned': return t`You got ${what}.`;
    case 'partial': return less(request, what, task, all);
    case 'none':
      if (request.reason === 'at_limit') return `${atLimit(task, all)} ${t`Finish or return something first.`}`;
      return nothing[request.reason === 'all_held' && holds ? 'held_too' : request.reason] ?? t`Nothing was handed out.`;
    case 'failed': return t`This task is broken; your managers can see this on the floor. Nothing was handed out.`;
    case 'cancelled': return t`Cancelled; nothing was handed out.`;
    case 'lost': return t`Your request was lost on the server. Please ask again.`;
  }
  return '';
}

/** Reports whether it makes sense to wait after getting nothing. */
export const mayCome = ({ state, reason }) => state === 'none' && ['no_match', 'all_held', 'paused'].includes(reason);

/** The items that the user's own returns keep back. works: the returned work. */
export function yours(works) {
  const [{ item, title = item, to_others: others, available_at: from }] = works;
  const more = works.length - 1;
  if (others) return more ? t`You left ${title}, and ${more} more to others.` : t`You left ${title} to others.`;
  return more ? t`You put off ${title} until ${clock(from)}, and ${more} more.` : t`You put off ${title} until ${clock(from)}.`;
}

/** The state of work by a disposition's outcome. */
export const becomes = { complete: 'completed', return: 'returned', never: 'never' };

/** How work was, or is about to be, closed. */
export function letGo({ state, available_at: from, to_others: others }) {
  if (state === 'never') return t`never to be handed out again`;
  if (state !== 'returned' || !from) return states[state];
  return others ? t`returned to others, not offered before ${clock(from)}` : t`returned, not offered before ${clock(from)}`;
}

/** Why work left the pipeline without being closed here. over: its lease was. */
export function gone(work, over) {
  const when = clock(work.closed_at ?? work.lease_expires_at ?? now());
  switch (work.state) {
    case 'held': return over ? t`It went back at ${when}.` : t`It is not yours any more.`;
    case 'expired': return t`It went back at ${when}.`;
    case 'never': return work.exhausted
      ? t`Its time was over at ${when}, and that was the last attempt: it is not handed out any more.`
      : t`It was set to never again at ${when}, in another tab or by a manager.`;
    case 'reassigned': return t`It was given to somebody else at ${when}.`;
  }
  return t`It was ${states[work.state]} at ${when}, in another tab or by a manager.`;
}

/** Reports whether it makes sense to claim such work again. */
export const mayComeBack = (work) => ['held', 'expired', 'returned'].includes(work.state);
