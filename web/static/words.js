/** How the page words and writes things. Everything here returns text, never markup. */

import { locale, t } from './lang.js';
import { now } from './now.js';

const number = new Map(); // formatters by decimals
const day = new Intl.DateTimeFormat(locale, { dateStyle: 'medium', timeZone: 'UTC' });
const hour = new Intl.DateTimeFormat(locale, { timeStyle: 'short' });
const moment = new Intl.DateTimeFormat(locale, { dateStyle: 'medium', timeStyle: 'short' });
const whole = new Intl.DateTimeFormat(locale, { dateStyle: 'full', timeStyle: 'long' });

/** A number that JavaScript would write differently, such as 1.50, or can't represent, such as 12345678901234567890. */
class Exact extends Number {
  constructor(text) {
    super(text);
    this.text = text;
  }
}

// What may be such a number. Looking at each value of a large answer takes ten times as long as reading it.
const otherwise = /0\.0{6}|[\d.]{16}|(?:\.\d*0|\d[eE][-+]?\d+|-0)(?![^,\]}\s])/;

/** JSON.parse, but amounts keep their zeros. Browsers that do not expose a number's source text show it without them. */
export const parse = (json) => JSON.parse(json, otherwise.test(json) ? (_, v, as) => (
  typeof v === 'number' && as?.source && as.source !== String(v) ? new Exact(as.source) : v) : undefined);

const isNumber = (v) => typeof v === 'number' || v instanceof Exact;
const textOf = (v) => v.text ?? String(v);

/** A column's value by its type. decimals: as many as the column's longest has. */
export function value(v, decimals = 0) {
  if (isNumber(v)) return numberText(v, decimals);
  switch (typeof v) {
    case 'boolean': return v ? t`yes` : t`no`;
    case 'string': return stringText(v);
  }
  if (v === null || v === undefined) return '–';
  if (Array.isArray(v) && v.every(isPlain)) return v.map((one) => value(one)).join(', ') || '–';
  return lines(v).join('\n');
}

const isPlain = (v) => v === null || typeof v !== 'object' || v instanceof Exact;

const deepest = 8; // levels that are drawn: nobody reads deeper ones, and thousands of them would end the page's stack

/** Nested JSON as people read it: a line for each member, indented by its depth. */
function lines(v, depth = 0) {
  const indent = '  '.repeat(depth);
  if (depth === deepest) return [`${indent}${t`(deeper levels are not shown)`}`];
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
    number.set(decimals, new Intl.NumberFormat(locale, {
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
const dates = new Intl.DateTimeFormat(locale, { dateStyle: 'medium' });

/** A value in a display's format; undefined if it does not fit the format. */
export function formattedAs(format, v, { currency, places = 0 }) {
  switch (format) {
    case 'money': {
      if (!isNumber(v) || Math.abs(v) > Number.MAX_SAFE_INTEGER) return undefined;
      const key = `${currency} ${places}`;
      if (!money.has(key)) {
        money.set(key, new Intl.NumberFormat(locale, { style: 'currency', currency, currencyDisplay: 'code', minimumFractionDigits: places && Math.max(2, places), maximumFractionDigits: 6 }));
      }
      return money.get(key).format(v);
    }
    case 'percentage': return isNumber(v) ? new Intl.NumberFormat(locale, { style: 'percent', minimumFractionDigits: places, maximumFractionDigits: 6 }).format(v / 100) : undefined;
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
  const tomorrow = new Date(now());
  if (then.toDateString() === tomorrow.toDateString()) return hour.format(then);
  tomorrow.setDate(tomorrow.getDate() + 1);
  return then.toDateString() === tomorrow.toDateString() ? t`tomorrow, ${hour.format(then)}` : moment.format(then);
}

const half = 1_800_000; // ms
const weekday = new Intl.DateTimeFormat(locale, { weekday: 'short', day: 'numeric', month: 'short' });

/** When something will be that is an estimate: to five minutes today, to half an hour this week, and to the day later. */
export function nearly(time) {
  const away = Date.parse(time) - now();
  const unit = away > 12 * 3_600_000 ? half : half / 6;
  const then = new Date(Math.ceil(Date.parse(time) / unit) * unit);
  const tomorrow = new Date(now());
  if (then.toDateString() === tomorrow.toDateString()) return t`today, ${hour.format(then)}`;
  tomorrow.setDate(tomorrow.getDate() + 1);
  if (then.toDateString() === tomorrow.toDateString()) return t`tomorrow, ${hour.format(then)}`;
  return away > 8 * 24 * 3_600_000 ? weekday.format(then) : `${weekday.format(then)}, ${hour.format(then)}`;
}

/** A time in full. */
export const fully = (time) => whole.format(new Date(time));

/** The rest of a lease, such as 12 min left, rounded down. */
export function remaining(ms) {
  const s = Math.floor(ms / 1000);
  if (s < 1) return t`Time is up`;
  if (s < 60) return t`${s} s left`;
  const m = Math.floor(s / 60);
  if (m < 60) return t`${m} min left`;
  const h = Math.floor(m / 60);
  return h < 10 && m % 60 ? t`${h} h ${m % 60} min left` : t`${h} h left`;
}

/** Milliseconds as 0:07, 12:40 or 1:02:03. */
export function elapsed(ms) {
  const s = Math.max(0, Math.floor(ms / 1000));
  const two = (n) => String(n).padStart(2, '0');
  const [h, m] = [Math.floor(s / 3600), Math.floor(s / 60) % 60];
  return h ? `${h}:${two(m)}:${two(s % 60)}` : `${m}:${two(s % 60)}`;
}

/** States of work. */
export const states = {
  held: t`held`, completed: t`completed`, returned: t`returned`, failed: t`failed`, expired: t`expired`, reassigned: t`reassigned`, never: t`never`,
};

const roles = { worker: t`worker`, agent: t`agent`, observer: t`observer`, manager: t`manager`, administrator: t`administrator` };

/** A role’s name. */
export const roleName = (role) => roles[role] ?? role;

/** A person's initials: of the first and the last word of their name, which dots may separate. */
export function initials(name) {
  const words = name.split('@')[0].split(/[\s._-]+/u).filter(Boolean);
  const letters = words.length > 1 ? [words[0], words.at(-1)].map((word) => [...word][0]) : [...words[0] ?? name].slice(0, 2);
  return letters.join('').toLocaleUpperCase(locale);
}

/** Which of six colours a person's initials have, for data-face: always the same one. */
export const faceOf = (name) => [...name].reduce((sum, c) => (sum * 31 + c.codePointAt(0)) % 65_521, 7) % 6 + 1;
