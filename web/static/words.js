/** How the page words and writes things. Everything here returns text, never markup. */

const number = new Map(); // formatters by decimals
const day = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeZone: 'UTC' });
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
  rules: 'Nothing here is for you: what there is, the task’s rules give to others.',
  at_limit: 'You hold as many items of this task as you may. Finish some first.',
};

/** How a request ended. */
export function outcome(request) {
  switch (request.state) {
    case 'assigned': return `${items(request.assigned)} now in your pipeline.`;
    case 'partial': return `${items(request.assigned)} now in your pipeline; there were no more of the ${request.wanted} that you asked for.`;
    case 'none': return nothing[request.reason] ?? 'Nothing was handed out.';
    case 'failed': return 'The task’s query failed, and nothing was handed out. A manager has to look at it:';
    case 'cancelled': return 'Cancelled; nothing was handed out.';
  }
  return '';
}

/** What became of work. */
export const disposed = (work) => ({
  completed: `${work.item}: completed.`,
  returned: `${work.item}: returned, to be handed out again from ${at(work.available_at)}.`,
  never: `${work.item}: never to be handed out again.`,
}[work.state] ?? `${work.item}: ${work.state}.`);
