/** How the page words and writes things. Everything here returns text, never markup. */

const number = new Map(); // formatters by decimals
const day = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeZone: 'UTC' });
const hour = new Intl.DateTimeFormat(undefined, { timeStyle: 'short' });
const moment = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeStyle: 'short' });

/** A number that JavaScript would write in another way, such as 1.50, or can't hold, such as 12345678901234567890. */
class Exact extends Number {
  constructor(text) {
    super(text);
    this.text = text;
  }
}

/** JSON.parse, but amounts keep their zeros. Browsers that do not tell a number's text show it without them. */
export const parse = (json) => JSON.parse(json, (_, v, as) => (typeof v === 'number' && as?.source && as.source !== String(v) ? new Exact(as.source) : v));

const isNumber = (v) => typeof v === 'number' || v instanceof Exact;
const textOf = (v) => v.text ?? String(v);

/** A column's value: its kind is all that is known of it. decimals: as many as the column's longest has. */
export function value(v, decimals = 0) {
  if (isNumber(v)) return numberText(v, decimals);
  switch (typeof v) {
    case 'boolean': return v ? 'yes' : 'no';
    case 'string': return stringText(v);
  }
  return v === null || v === undefined ? '–' : JSON.stringify(v, null, 1);
}

function numberText(v, decimals) {
  if (Math.abs(v) > Number.MAX_SAFE_INTEGER) return textOf(v);
  if (!number.has(decimals)) {
    // Amounts are always grouped; of whole numbers 2026 stays a year, and 12,345 is easy to read.
    number.set(decimals, new Intl.NumberFormat(undefined, { minimumFractionDigits: decimals, maximumFractionDigits: 6, useGrouping: decimals ? 'always' : 'min2' }));
  }
  return number.get(decimals).format(v);
}

function stringText(v) {
  if (/^\d{4}-\d\d-\d\d$/.test(v)) return formatted(day, v);
  if (/^\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d(:?\d\d)?)?$/.test(v)) return formatted(moment, v.replace(' ', 'T'));
  return v;
}

function formatted(format, v) {
  const time = new Date(v);
  return Number.isNaN(time.getTime()) ? v : format.format(time);
}

/** How many decimals the numbers of a column have, so that one column's are written alike. */
export function decimals(values) {
  const of = (v) => (isNumber(v) ? (textOf(v).match(/\.(\d+)$/)?.[1].length ?? 0) : 0);
  return Math.min(6, Math.max(0, ...values.map(of)));
}

/** A column's name as a label: usual_balance becomes Usual balance. */
export function label(column) {
  const words = column.replaceAll('_', ' ').trim();
  return words ? words[0].toUpperCase() + words.slice(1) : column;
}

/** A time as a clock shows it. */
export const at = (time) => moment.format(new Date(time));

/** A time of day; with the day, when that is not today. */
export function clock(time) {
  const then = new Date(time);
  return then.toDateString() === new Date().toDateString() ? hour.format(then) : moment.format(then);
}

const units = { h: 3_600_000, m: 60_000, s: 1000, ms: 1 };

/** A duration such as "90s" or "24h" in milliseconds; 0: none was given. */
export const milliseconds = (duration) => [...(duration ?? '').matchAll(/([\d.]+)(h|ms|m|s)/g)].reduce((sum, [, n, unit]) => sum + n * units[unit], 0);

/** What is left of a lease, such as 12 min left. It never promises more than there is. */
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

const items = (n) => (n === 1 ? '1 item' : `${n} items`);

const nothing = {
  no_match: 'Nothing matches this task now.',
  all_held: 'All that matches is with somebody already, or put off. Try again later.',
  paused: 'A manager has paused this task. Nothing is handed out until it goes on.',
  rules: 'There is work, but not for you: you had it before, or the task’s rules want somebody else for it.',
};

const atLimit = (limit) => (limit ? `You hold ${items(limit)} of this task, and may hold no more.` : 'You hold as many items of this task as you may.');

/** How a request ended. limit: how many items of the task one may hold, where that is limited. */
export function outcome(request, limit) {
  switch (request.state) {
    case 'assigned': return `${items(request.assigned)} now in your pipeline.`;
    case 'partial': return `${items(request.assigned)} now in your pipeline; of the ${request.wanted} that you asked for there were no more for you.`;
    case 'none':
      if (request.reason === 'at_limit') return `${atLimit(limit)} Finish or return something first.`;
      return nothing[request.reason] ?? 'Nothing was handed out.';
    case 'failed': return 'The task’s query failed, and nothing was handed out. A manager has to look at it:';
    case 'cancelled': return 'Cancelled; nothing was handed out.';
  }
  return '';
}

/** What became of work. */
export const disposed = (work) => ({
  completed: `${work.item}: completed.`,
  returned: `${work.item}: returned, to be handed out again ${work.to_others ? 'to others ' : ''}from ${at(work.available_at)}.`,
  never: `${work.item}: never to be handed out again.`,
}[work.state] ?? `${work.item}: ${work.state}.`);

/** Why work left the pipeline, though nobody here let go of it. over: its lease was. */
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

/** Whether it makes sense to ask for such work again. */
export const mayComeBack = (work) => ['held', 'expired', 'returned'].includes(work.state);
