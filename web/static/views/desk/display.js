/** How an item is shown: as its task's display says, or by the types and names of its details. */

import { decimals, exactly, formattedAs, label, value } from '../../words.js';

const opened = ['https:', 'mailto:', 'tel:', 'sip:', 'sms:']; // as on the server
const braces = /\{([^{}]*)\}/g;
const titles = ['title', 'name', 'subject', 'full_name'];
const condition = /^\s*([^\s=!<>'"{}]+)\s*(?:(=|!=|>=|<=|>|<)\s*(?:(-?\d+(?:\.\d+)?)|'([^']*)'|"([^"]*)"|(true|false)))?\s*$/;

/** An address that may be opened, or ''. */
export function address(text) {
  try {
    const url = new URL(text);
    return opened.includes(url.protocol) ? url.href : '';
  } catch {
    return '';
  }
}

/** Reports whether a condition, such as wrong > 0, is true of details. What can't be read is false. */
export function holds(text, details) {
  const [, column, operator, number, single, double, bool] = text.match(condition) ?? [];
  const v = details[column];
  if (!column || v === null || v === undefined) return false;
  const plain = String(v.text ?? v);
  if (!operator) return plain !== '' && plain !== 'false' && !(plain.trim() && Number(plain) === 0);
  const other = single ?? double ?? bool;
  const [a, b] = number === undefined ? [plain, other] : [plain.trim() ? Number(plain) : NaN, Number(number)];
  switch (operator) {
    case '=': return a === b;
    case '!=': return a !== b && !Number.isNaN(a);
    case '>': return a > b;
    case '>=': return a >= b;
    case '<': return a < b;
  }
  return a <= b;
}

/** A column's format without a display. */
function guess(column, v) {
  if (typeof v === 'string') {
    if (/iban/i.test(column) && /^[A-Z]{2}\d{2}[A-Z0-9 ]{8,36}$/.test(v)) return 'iban';
    if (/^https:\/\/\S+$/.test(v)) return 'link';
    return '';
  }
  const isNumber = typeof v === 'number' || v instanceof Number;
  return isNumber && /(^|_)(percent|percentage|pct)$/.test(column) ? 'percentage' : '';
}

function textOf(field, v, places) {
  const format = field.format ?? guess(field.column, v);
  return formattedAs(format, v, { currency: field.currency, places }) ?? value(v, places);
}

function fill(template, item, details, text) {
  return template.replace(braces, (_, name) => {
    const column = name.trim();
    if (column === 'item' && !(column in details)) return text(column, item);
    const v = details[column];
    return v === null || v === undefined ? '' : text(column, v);
  });
}

/**
 * An item as it is shown: {title, link, fields}; a field is {column, label, text, exact, strong, folded, figure, href,
 * colour, yes}; figure: it is a number; yes: the value if it is a boolean. places: a Map of decimals by column, if known.
 */
export function shown(display, item, details, places) {
  const all = details ?? {};
  const others = display ? display.others ?? 'folded' : 'shown';
  const fields = [...(display?.fields ?? [])];
  const named = new Map(fields.map((f) => [f.column, f]));
  const of = (column) => places?.get(column) ?? decimals([all[column]]);
  if (others !== 'hidden') {
    for (const column of Object.keys(all)) if (!named.has(column)) fields.push({ column, folded: others === 'folded' });
  }
  const text = (column, v) => textOf(named.get(column) ?? { column }, v, of(column));
  const guessed = titles.map((name) => all[name]).find((v) => typeof v === 'string' && v.trim() && v.length <= 80);
  const title = display?.title ? fill(display.title, item, all, text).trim() : display ? '' : guessed;
  const link = display?.url ? address(fill(display.url, item, all, (_, v) => encodeURIComponent(String(v.text ?? v)))) : '';
  return {
    title: title || item,
    link,
    fields: fields.filter((f) => f.column in all).map((f) => {
      const v = all[f.column];
      const format = f.format ?? guess(f.column, v);
      return {
        column: f.column,
        label: f.label || label(f.column),
        text: textOf(f, v, of(f.column)),
        exact: exactly(v),
        strong: Boolean(f.stands_out && holds(f.stands_out, all)),
        folded: Boolean(f.folded),
        figure: typeof v === 'number' || v instanceof Number,
        yes: typeof v === 'boolean' ? v : undefined,
        href: format === 'link' && typeof v === 'string' ? address(v) : '',
        colour: format === 'badge' && v !== null ? f.badges?.[String(v.text ?? v)] ?? 'plain' : '',
      };
    }),
  };
}
