/** How the page words and writes things. Everything here returns text, never markup. */

const number = new Map(); // formatters by decimals
const day = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeZone: 'UTC' });
const hour = new Intl.DateTimeFormat(undefined, { timeStyle: 'short' });
const moment = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeStyle: 'short' });
const whole = new Intl.DateTimeFormat(undefined, { dateStyle: 'full', timeStyle: 'long' });

/** A number that JavaScript would write differently, such as 1.50, or can't represent, such as 12345678901234567890. */
class Exact extends Number {
  constructor(text) {
    super(text);
    this.text = text;
  }
}

/** JSON.parse, but amounts keep their zeros. Browsers that do not expose a number's source text show it without them. */
export const parse = (json) => JSON.parse(json, (_, v, as) => {
  const otherwise = typeof v === 'number' && as?.source && as.source !== String(v);
  return otherwise ? new Exact(as.source) : v;
});

const isNumber = (v) => typeof v === 'number' || v instanceof Exact;
const textOf = (v) => v.text ?? String(v);

/** A column's value by its type. decimals: as many as the column's longest has. */
export function value(v, decimals = 0) {
  if (isNumber(v)) return numberText(v, decimals);
  switch (typeof v) {
    case 'boolean': return v ? 'yes' : 'no';
    case 'string': return stringText(v);
  }
  if (v === null || v === undefined) return '–';
  if (Array.isArray(v) && v.every(isPlain)) return v.map((one) => value(one)).join(', ') || '–';
  return lines(v).join('\n');
}

const isPlain = (v) => v === null || typeof v !== 'object' || v instanceof Exact;

/** Nested JSON as people read it: a line for each member, indented by its depth. */
function lines(v, depth = 0) {
  const indent = '  '.repeat(depth);
  return Object.entries(v).flatMap(([name, one]) => {
    const head = `${indent}${Array.isArray(v) ? `${Number(name) + 1}.` : `${label(name)}:`}`;
    const short = isPlain(one) || (Array.isArray(one) && one.every(isPlain));
    return short ? [`${head} ${value(one)}`] : [head, ...lines(one, depth + 1)];
  });
}

function numberText(v, decimals) {
  if (Math.abs(v) > Number.MAX_SAFE_INTEGER) return textOf(v);
  if (!number.has(decimals)) {
    // Amounts are always grouped. Of whole numbers, only those above 9999 are: 2026 may be a year.
    number.set(decimals, new Intl.NumberFormat(undefined, {
      minimumFractionDigits: decimals, maximumFractionDigits: 6, useGrouping: decimals ? 'always' : 'min2',
    }));
  }
  return number.get(decimals).format(v);
}

const isMoment = (v) => typeof v === 'string' && /^\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d(:?\d\d)?)?$/.test(v);

function stringText(v) {
  if (/^\d{4}-\d\d-\d\d$/.test(v)) return formatted(day, v);
  return isMoment(v) ? formatted(moment, v.replace(' ', 'T')) : v;
}

const money = new Map(); // formatters by currency and decimals
const dates = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium' });

/** A value in a display's format; undefined if it does not fit the format. */
export function formattedAs(format, v, { currency, places = 0 }) {
  switch (format) {
    case 'money': {
      if (!isNumber(v) || Math.abs(v) > Number.MAX_SAFE_INTEGER) return undefined;
      const key = `${currency} ${places}`;
      if (!money.has(key)) {
        money.set(key, new Intl.NumberFormat(undefined, { style: 'currency', currency, currencyDisplay: 'code', minimumFractionDigits: places, maximumFractionDigits: 6 }));
      }
      return money.get(key).format(v);
    }
    case 'percentage': return isNumber(v) ? new Intl.NumberFormat(undefined, { style: 'percent', minimumFractionDigits: places, maximumFractionDigits: 6 }).format(v / 100) : undefined;
    case 'iban': return typeof v === 'string' ? v.replace(/\s/g, '').replace(/(.{4})(?=.)/g, '$1 ') : undefined;
    case 'date': return isMoment(v) ? formatted(dates, v.replace(' ', 'T')) : undefined;
    case 'text': return isPlain(v) && v !== null ? String(textOf(v)) : undefined;
  }
  return undefined;
}

/** The exact time of a value that is a time; undefined if it is none. */
export const exactly = (v) => (isMoment(v) ? formatted(whole, v.replace(' ', 'T')) : undefined);

function formatted(format, v) {
  const time = new Date(v);
  return Number.isNaN(time.getTime()) ? v : format.format(time);
}

/** How many decimals the numbers of a column need, so that all are written alike. */
export function decimals(values) {
  const of = (v) => (isNumber(v) ? (textOf(v).match(/\.(\d+)$/)?.[1].length ?? 0) : 0);
  return Math.min(6, Math.max(0, ...values.map(of)));
}

/** A column's name as a label: usual_balance becomes Usual balance. */
export function label(column) {
  const words = column.replaceAll('_', ' ').trim();
  return words ? words[0].toUpperCase() + words.slice(1) : column;
}

/** A time of day; with the day, when that is not today. */
export function clock(time) {
  const then = new Date(time);
  const tomorrow = new Date();
  if (then.toDateString() === tomorrow.toDateString()) return hour.format(then);
  tomorrow.setDate(tomorrow.getDate() + 1);
  return then.toDateString() === tomorrow.toDateString() ? `tomorrow, ${hour.format(then)}` : moment.format(then);
}

/** A time in full. */
export const fully = (time) => whole.format(new Date(time));

const units = { h: 3_600_000, m: 60_000, s: 1000, ms: 1 };

/** A duration such as "90s" or "24h" in milliseconds; 0 for none. */
export function milliseconds(duration) {
  const parts = [...(duration ?? '').matchAll(/([\d.]+)(h|ms|m|s)/g)];
  return parts.reduce((sum, [, n, unit]) => sum + n * units[unit], 0);
}

/** The rest of a lease, such as 12 min left, rounded down. */
export function remaining(ms) {
  const s = Math.floor(ms / 1000);
  if (s < 1) return 'Time is up';
  if (s < 60) return `${s} s left`;
  const m = Math.floor(s / 60);
  if (m < 60) return `${m} min left`;
  const h = Math.floor(m / 60);
  return h < 10 && m % 60 ? `${h} h ${m % 60} min left` : `${h} h left`;
}

/** Milliseconds as 0:07, 12:40 or 1:02:03. */
export function elapsed(ms) {
  const s = Math.max(0, Math.floor(ms / 1000));
  const two = (n) => String(n).padStart(2, '0');
  const [h, m] = [Math.floor(s / 3600), Math.floor(s / 60) % 60];
  return h ? `${h}:${two(m)}:${two(s % 60)}` : `${m}:${two(s % 60)}`;
}

/** How long something has been held, without seconds. */
export function held(ms) {
  const m = Math.floor(ms / 60_000);
  if (m < 1) return 'less than 1 min';
  if (m < 60) return `${m} min`;
  const h = Math.floor(m / 60);
  if (h < 48) return h < 10 && m % 60 ? `${h} h ${m % 60} min` : `${h} h`;
  return `${Math.floor(h / 24)} days`;
}

/** The rest of a wait. */
export function about(ms) {
  const s = Math.ceil(ms / 1000);
  if (s <= 0) return 'This takes longer than usual.';
  return s < 90 ? `About ${s} s more.` : `About ${Math.round(s / 60)} min more.`;
}

const counted = (n, one, many) => `${n.toLocaleString()} ${n === 1 ? one : many}`;
const items = (n) => counted(n, 'item', 'items');

/** So many of what a task's display calls its items. */
export const things = (n, display) => (display?.one ? counted(n, display.one, display.many) : items(n));

/** What is on its way to the pipeline. ms: until it should be there; null: nobody knows. */
export function coming(n, display, ms) {
  const what = things(n, display);
  const are = n === 1 ? 'is' : 'are';
  const s = ms === null ? 0 : Math.ceil(ms / 1000);
  if (s <= 0) return `${what} ${are} coming`;
  return s < 90 ? `${what} ${are} coming, about ${s} s` : `${what} ${are} coming, about ${Math.round(s / 60)} min`;
}

/** What has come. */
export const arrived = (n, display) => `${things(n, display)} arrived`;

/** A lease that was renewed by hand. */
export const keptUntil = (iso) => `Kept until ${clock(iso)}`;

/** A task's activity. */
export function counts({ waiting, held: out, shelf }) {
  return [
    shelf ? `${shelf} ready at once` : '',
    waiting ? counted(waiting, 'person waiting', 'people waiting') : 'nobody waiting',
    out ? `${items(out)} held` : 'nothing held',
  ].filter(Boolean).join(' · ');
}

const nothing = {
  no_match: 'Nothing matches this task now. Ask again later, or wait for new items.',
  all_held: 'Everything that matches is held by others or put off. Ask again later, or wait until an item is free.',
  held_too: 'Everything that matches is held by you or others, or put off. Ask again later, or wait until an item is free.',
  paused: 'A manager has paused this task. Nothing is handed out until it goes on; you can wait for that.',
  rules: 'There is work, but none that you may have: you returned it, or the task’s rules leave it to others. Try another task.',
};

function atLimit({ max_open: limit, display }) {
  if (!limit) return 'You hold as many items of this task as you may.';
  return `You hold ${things(limit, display)} of this task, and may hold no more.`;
}

/** Why a request got less than it asked for. */
function less({ wanted, reason }, task) {
  if (reason === 'at_limit') return `. ${atLimit(task)}`;
  const asked = `; of the ${wanted} that you asked for`;
  return reason === 'rules' ? `${asked} the task’s rules let you have no more.` : `${asked} there were no more.`;
}

/**
 * How a request ended, and what the user can do. task: the request's, as far as the page knows it; holds: how many of its items
 * the user holds.
 */
export function outcome(request, task = {}, holds = 0) {
  const there = (rest) => `${things(request.assigned, task.display)} now in your pipeline${rest}`;
  switch (request.state) {
    case 'assigned': return there('.');
    case 'partial': return there(less(request, task));
    case 'none':
      if (request.reason === 'at_limit') return `${atLimit(task)} Finish or return something first.`;
      return nothing[request.reason === 'all_held' && holds ? 'held_too' : request.reason] ?? 'Nothing was handed out.';
    case 'failed': return 'This task is broken; your managers have been told. Nothing was handed out.';
    case 'cancelled': return 'Cancelled; nothing was handed out.';
  }
  return '';
}

/** Reports whether it makes sense to wait after getting nothing. */
export const mayCome = ({ state, reason }) => state === 'none' && ['no_match', 'all_held', 'paused'].includes(reason);

/** The items that the user's own returns keep back. works: the returned work. */
export function yours(works) {
  const [{ item, title = item, to_others: others, available_at: from }] = works;
  const more = works.length > 1 ? `, and ${works.length - 1} more` : '';
  return others ? `You left ${title}${more} to others.` : `You put off ${title} until ${clock(from)}${more}.`;
}

/** The state of work by a disposition's outcome. */
export const becomes = { complete: 'completed', return: 'returned', never: 'never' };

/** How work was, or is about to be, closed. */
export function letGo({ state, available_at: from, to_others: others }) {
  if (state === 'never') return 'never to be handed out again';
  if (state !== 'returned') return state;
  return `returned${others ? ' to others' : ''}, not offered before ${clock(from)}`;
}

/** Why work left the pipeline without being closed here. over: its lease was. */
export function gone(work, over) {
  const when = clock(work.closed_at ?? work.lease_expires_at ?? Date.now());
  switch (work.state) {
    case 'held': return over ? `It went back at ${when}.` : 'It is not yours any more.';
    case 'expired': return `It went back at ${when}.`;
    case 'never': return work.exhausted
      ? `Its time was over at ${when}, and that was the last attempt: it is not handed out any more.`
      : `It was set to never again at ${when}, in another tab or by a manager.`;
    case 'reassigned': return `It was given to somebody else at ${when}.`;
  }
  return `It was ${work.state} at ${when}, in another tab or by a manager.`;
}

/** Reports whether it makes sense to claim such work again. */
export const mayComeBack = (work) => ['held', 'expired', 'returned'].includes(work.state);
