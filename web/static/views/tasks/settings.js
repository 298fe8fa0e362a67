/**
 * A task's settings: their titles and meanings, their input, and how it is parsed. The server checks them again; its limits are
 * repeated here, so that a mistake is shown during input.
 */

import { t } from '../../lang.js';
import { linesOf } from './diff.js';

/**
 * kind: how it is typed and parsed; choices: its values, and what each means. least, most: limits, written as the kind's input. none: what an empty field means; without
 * it the field must not be empty. Of rows, columns: {name, label}, from: the column that an empty one's text is made from; as: its value in the
 * API, says: and back, where that is no text; single: the one row is the value, not a list of them. only: the kind of tasks that have it, 'query' or 'inbox'. tab: of the task's page.
 */
export const groups = [
  { title: t`What it is`, tab: 'display', fields: [
    { name: 'title', label: t`Title`, kind: 'line', most: 200, help: t`What people see. Without one they see the name.` },
    { name: 'name', label: t`Name`, kind: 'name', help: t`What addresses and programs call it: a–z, 0–9 and hyphens.` },
    { name: 'description', label: t`Description`, kind: 'lines', most: 10_000, wide: true,
      help: t`A line or two for those who do the work.` },
  ] },
  { title: t`What somebody may take`, tab: 'limits', fields: [
    { name: 'max_request', label: t`Items at a time`, kind: 'count', least: 1, most: 1000,
      help: t`How many items a user may ask for at once.` },
    { name: 'max_open', label: t`Items per person`, kind: 'count', least: 1, most: 1_000_000, none: t`no limit`,
      help: t`How many items of this task a user may hold.` },
    { name: 'slots', label: t`Places per item`, kind: 'count', least: 1, most: 10_000,
      help: t`How many may hold the same item at a time, where the item itself does not say.` },
    { name: 'done_by', label: t`People per item`, kind: 'count', least: 1, most: 100, only: 'inbox',
      help: t`How many different people complete an item before it is done, where the item itself does not say.` },
    { name: 'once', label: t`Same person again`, kind: 'truth', only: 'query', choices: [['false', t`may get an item again`], ['true', t`gets each item once`]],
      help: t`Whether somebody who completed an item may get it again when the query returns it.` },
    { name: 'lease', label: t`Lease`, kind: 'duration', least: '1s', most: '168h', none: t`until it is let go of`,
      help: t`How long work is held before it goes back by itself; its holder can extend the lease.` },
    { name: 'on_away', label: t`When its holder is away`, kind: 'choice',
      choices: [['keep', t`work stays theirs`], ['release', t`work goes back`], ['to', t`work goes to their substitute, or back`]],
      help: t`What becomes of held work when its holder is away.` },
  ] },
  { title: t`What comes next`, tab: 'limits', fields: [
    { name: 'priority', label: t`Priority`, kind: 'count', least: -1_000_000, most: 1_000_000,
      help: t`Whoever asks for the next item of any task gets one of the highest number first; of equal ones in turns.` },
    { name: 'pick', label: t`Asked for`, kind: 'choice', choices: [['any', t`by name, too`], ['next', t`only as what comes next`]],
      help: t`Whether people may ask for this task and claim its items, or take what comes next.` },
  ] },
  { title: t`Why it is let go of`, tab: 'limits', fields: [
    { name: 'outcomes', label: t`Reasons`, kind: 'rows', most: 20, wide: true, add: t`Add a reason`, columns: [
      { name: 'label', label: t`What people read` },
      { name: 'code', label: t`Code`, from: 'label' },
      { name: 'do', label: t`Ends as`, choices: [['complete', t`done##of a reason`], ['return', t`given back`], ['never', t`removed`]] },
      { name: 'after', label: t`Back after`, hint: '2h' },
      { name: 'to', label: t`Back to`, choices: [['', t`anybody`], ['others', t`others`]] },
      { name: 'note', label: t`Note##of a reason`, choices: [['may', t`may be written`], ['must', t`must be written`], ['none', t`not asked for`]] },
    ], help: t`What people choose from when they let go of work, and what each choice does.` },
    { name: 'require_code', label: t`A reason`, kind: 'truth', choices: [['false', t`may be given`], ['true', t`must be given`]],
      help: t`Whether work is let go of only with a reason.` },
    { name: 'result', label: t`Result`, kind: 'rows', most: 50, wide: true, add: t`Add a field`, columns: [
      { name: 'name', label: t`Name`, hint: 'score' },
      { name: 'type', label: t`Type##of a field`, choices: [['number', t`number`], ['string', t`text`], ['boolean', t`yes or no`], ['date', t`date`]] },
      { name: 'enum', label: t`One of`, hint: '1, 2, 3', as: (text, { type }) => words(text).map(type === 'number' ? numberOf : String) },
      { name: 'min', label: t`From##a value`, as: numberOf },
      { name: 'max', label: t`To##a value`, as: numberOf },
      { name: 'required', label: t`Filled in`, choices: [['', t`if they like`], ['true', t`always`]], as: () => true },
    ], help: t`What people fill in when they let go of work. From and to are of numbers and dates.` },
  ] },
  { title: t`How it is shown`, tab: 'display', fields: [
    { name: 'position', label: t`Position`, kind: 'count', least: -1_000_000, most: 1_000_000, none: t`after those that have one, by title`,
      help: t`Where the task stands in the list that people see, the lowest first.` },
    { name: 'display', label: t`How an item is shown`, kind: 'json', wide: true, none: t`by the types and names of its details`,
      help: `${t`JSON with a title, a url, and fields:`} ${'{"title": "{borrower}, {city}", "url": "https://loans.example/{item}", '
        + '"fields": [{"column": "amount", "format": "money", "currency": "CHF", "stands_out": "amount > 9999"}]}'}.` },
  ] },
  { title: t`When it is completed`, tab: 'limits', fields: [
    { name: 'on_complete', label: t`Goes on to`, kind: 'rows', single: true, most: 1, wide: true, add: t`Name a task`, columns: [
      { name: 'task', label: t`Task`, hint: 'review' },
      { name: 'share', label: t`Share`, hint: '0.1', as: numberOf },
      { name: 'when', label: t`Only with the codes`, as: (text) => ({ code: words(text) }), says: ({ code }) => code.join(', ') },
    ], help: t`Another task, which is an inbox, and how much of what is completed goes there: 0.1 is one in ten.` },
  ] },
  { title: t`When the query runs`, tab: 'limits', only: 'query', fields: [
    { name: 'query_timeout', label: t`Time limit`, kind: 'duration', least: '1ms', most: '24h',
      help: t`A run that takes longer is stopped, and fails.` },
    { name: 'max_candidates', label: t`Rows kept`, kind: 'count', least: 1, most: 1_000_000,
      help: t`How many of the best free items a run keeps.` },
    { name: 'fresh_for', label: t`Fresh for`, kind: 'duration', least: '0s', most: '24h',
      help: t`How long a run’s leftovers are handed out without a new run.` },
    { name: 'stale_for', label: t`Stale for`, kind: 'duration', least: '0s', most: '24h',
      help: t`How much longer they are handed out while the next run is under way.` },
    { name: 'rerun_after', label: t`Look again after`, kind: 'duration', least: '1s', most: '24h',
      help: t`While people wait for something to come up, the query runs at most this often.` },
  ] },
  { title: t`When work fails`, tab: 'limits', fields: [
    { name: 'max_attempts', label: t`Attempts`, kind: 'count', least: 1, most: 1_000_000, none: t`no limit`,
      help: t`After so many attempts that failed or ran out of time an item is not handed out any more.` },
    { name: 'backoff', label: t`Wait after a failure`, kind: 'duration', least: '1ms', most: '24h',
      help: t`Before an item that failed is handed out again; twice as long after each further failure.` },
  ] },
  { title: t`When it is an alert`, tab: 'limits', fields: [
    { name: 'alert_waiting', label: t`Nobody served for`, kind: 'duration', least: '10s', most: '168h',
      help: t`How long somebody may wait and be served by no node.` },
    { name: 'alert_backlog_age', label: t`Age of the oldest item`, kind: 'duration', least: '1m', most: '8760h', none: t`any`,
      help: t`How old the oldest item that can be handed out may be.` },
  ] },
  { title: t`Who may take it`, tab: 'access', fields: [
    { name: 'groups', label: t`Groups`, kind: 'list', one: 'group', none: t`everybody`,
      help: t`Only members of these groups see the task and take its work.` },
    { name: 'conflicts_with', label: t`Conflicts with`, kind: 'list', one: 'task', none: t`no task`,
      help: t`Four eyes: a user who holds or completed an item under one of these tasks does not get it here, and vice versa.` },
    { name: 'notes', label: t`Earlier notes`, kind: 'choice', choices: [['holders', t`holders and managers`], ['managers', t`managers only`]],
      help: t`Who sees how an item was let go of before, and what was noted.` },
  ] },
];

const queries = [
  { name: 'query', label: t`Query`, kind: 'sql', most: 500_000,
    help: t`One SELECT that returns a column item, best first. It may return slots and exclusive; all other columns are shown as the work’s details. Don’t write a LIMIT, and don’t leave out what is held or put off: getwork does both.` },
  { name: 'recheck', label: t`Recheck`, kind: 'sql', most: 500_000, none: t`none`,
    help: t`A quick SELECT on $1, item keys as text[], that returns those that still match. It is asked just before items are handed out.` },
];

/** All settings but paused, which is not typed, by name, in the order in which they are shown. */
const [about, ...rules] = groups.map((g) => g.fields.map((f) => ({ ...f, only: f.only ?? g.only, tab: g.tab })));
export const fields = new Map([...about, ...queries.map((f) => ({ ...f, tab: 'query' })), ...rules.flat()].map((f) => [f.name, f]));

/** A new task's values, as on the server. */
export const defaults = {
  name: '', title: '', description: '', query: '', query_timeout: '2m', fresh_for: '0s', stale_for: '0s', recheck: null, max_candidates: 1000,
  max_request: 5, max_open: null, lease: null, slots: 1, done_by: 1, once: false, max_attempts: null, backoff: '30s', rerun_after: '1m',
  conflicts_with: [], groups: [], position: null, display: null, notes: 'holders', on_away: 'keep', priority: 0, pick: 'any', on_complete: null,
  outcomes: [], require_code: false, result: [], alert_waiting: '5m', alert_backlog_age: null, paused: false, version: 0,
};

/** The words of a list, such as 1, 2, 3. */
function words(text) { return text.split(',').map((word) => word.trim()).filter(Boolean); }

/** A number; what is none stays as it was typed, and the server says what is wrong with it. */
function numberOf(text) {
  const n = Number(text.replace(',', '.'));
  return Number.isFinite(n) ? n : text;
}

/** Go's units in microseconds. */
const units = { h: 3.6e9, m: 6e7, s: 1e6, ms: 1000, us: 1, µs: 1, μs: 1, ns: 0.001 };

/** A duration in Go's form, such as 1h30m, in microseconds; null if it is none. */
export function microseconds(text) {
  if (text === '0' || text === '+0' || text === '-0') return 0;
  const [, sign, rest] = text.match(/^([-+]?)(.*)$/s);
  if (!/^((\d+\.?\d*|\.\d+)(h|ms|m|s|us|µs|μs|ns))+$/.test(rest)) return null;
  const sum = [...rest.matchAll(/([\d.]+)(h|ms|m|s|us|µs|μs|ns)/g)].reduce((us, [, n, unit]) => us + n * units[unit], 0);
  return sign === '-' ? -sum : sum;
}

const slug = /^[a-z0-9][a-z0-9-]{0,62}$/;
const bytes = (text) => new TextEncoder().encode(text).length;

/** A setting as the text of its field. Of a list, the entry that is being added is text, too. */
export function textOf(field, value) {
  if (field.kind === 'list') return { list: value, adding: '' };
  if (field.kind === 'rows') return rowsOf(field, value).map((row) => cellsOf(field, row));
  if (field.kind === 'json') return value === null ? '' : JSON.stringify(value, null, 2);
  return value === null ? '' : String(value).replace(/\r\n?/g, '\n');
}

const rowsOf = ({ single }, value) => (single ? [value].filter(Boolean) : value);
const cellsOf = ({ columns }, row) => columns.map(({ name, says = String }) => (row[name] === undefined || row[name] === null ? '' : Array.isArray(row[name]) ? row[name].join(', ') : says(row[name])));

/** A setting's input, as {value} or {error}. */
export function read(field, typed) {
  const { kind, none, most } = field;
  if (kind === 'rows') {
    const value = typed.filter((row) => row.some((cell) => cell.trim())).map((row) => readRow(field, row));
    return { value: field.single ? value[0] ?? null : value };
  }
  const empty = kind !== 'list' && typed.trim() === '';
  if (empty && none !== undefined) return { value: null };
  switch (kind) {
    case 'count': return readCount(field, typed.trim());
    case 'duration': return readDuration(field, typed.trim());
    case 'list': return readList(field, typed);
    case 'truth': return { value: typed === 'true' };
    case 'json': return readJSON(typed);
    case 'name': return slug.test(typed)
      ? { value: typed } : { error: t`A name is 1 to 63 of a–z, 0–9 and hyphens, and does not begin with a hyphen.` };
    case 'sql': if (empty) return { error: t`Write a SELECT that returns a column item, best first.` };
  }
  if (typed.includes('\0')) return { error: t`This has a NUL character in it; take it out.` };
  return bytes(typed) > most ? { error: t`At most ${String(most)} bytes; this has ${String(bytes(typed))}.` } : { value: typed };
}

/** A row as the server has it: what is empty is left out. The server says what is wrong in it. */
function readRow({ columns }, row) {
  const typed = Object.fromEntries(columns.map(({ name }, i) => [name, row[i].trim()]));
  const cells = columns.map(({ name, as = String }) => [name, typed[name] && as(typed[name], typed)]);
  const value = Object.fromEntries(cells.filter(([, v]) => v !== '' && v !== undefined));
  const named = columns.find((c) => c.from);
  return named && value[named.name] === undefined && value[named.from] ? { ...value, [named.name]: slugOf(value[named.from]) } : value;
}

/** A name made of a text: its letters and digits that a name may have, without accents. */
export const slugOf = (text) => text.toLowerCase().replaceAll('ß', 'ss').normalize('NFKD').replace(/\p{M}/gu, '')
  .replace(/[^a-z0-9]+/g, '-').slice(0, 63).replace(/^-|-+$/g, '');

function readJSON(text) {
  try {
    const value = JSON.parse(text);
    return value && typeof value === 'object' && !Array.isArray(value) ? { value } : { error: t`A JSON object in braces.` };
  } catch (e) {
    return { error: t`This is not JSON: ${e.message}.` };
  }
}

function readCount({ least, most, none }, text) {
  const n = /^[-+]?\d{1,15}$/.test(text) ? Number(text) : NaN;
  return n >= least && n <= most ? { value: n } : { error: orEmpty(t`A whole number from ${String(least)} to ${String(most)}`, none) };
}

function readDuration({ least, most, none }, text) {
  const us = microseconds(text);
  if (us === null) return { error: orEmpty(t`A number with a unit, such as 90s, 2m or 24h`, none) };
  const within = us >= microseconds(least) && us <= microseconds(most);
  return within ? { value: text } : { error: orEmpty(t`From ${least} to ${most}`, none) };
}

const orEmpty = (text, none) => (none === undefined ? `${text}.` : t`${text}, or empty: ${none}.`);

function readList({ one }, { list, adding }) {
  const value = added(list, adding);
  if (value.length > 100) return { error: one === 'task' ? t`At most 100 tasks.` : t`At most 100 groups.` };
  const bad = value.find((v) => (one === 'task' ? !slug.test(v) : bytes(v) > 128 || /\p{Cc}/u.test(v)));
  if (bad === undefined) return { value };
  return { error: one === 'task' ? t`“${bad}” is not a task’s name.` : t`“${bad}” is too long for a group, or has control characters.` };
}

/** A list with the entry that was being added. */
export const added = (list, adding) => [...new Set([...list, ...adding.split(',').map((v) => v.trim()).filter(Boolean)])];

/** JSON with the names of its members in order. */
const sorted = (value) => JSON.stringify(value, (_, v) => (v && typeof v === 'object' && !Array.isArray(v)
  ? Object.fromEntries(Object.entries(v).sort(([a], [b]) => (a < b ? -1 : 1))) : v));

/** Reports whether two values of a setting mean the same: 120s is 2m, and the order of a list does not matter. */
export function same(field, a, b) {
  if (a === b || a === null || b === null) return a === b;
  switch (field.kind) {
    case 'duration': return microseconds(a) === microseconds(b);
    case 'list': return a.length === b.length && a.every((v) => b.includes(v));
    case 'json': case 'rows': return sorted(a) === sorted(b);
    case 'sql': case 'lines': return linesOf(a).join('\n') === linesOf(b).join('\n');
  }
  return a === b;
}

/** The settings in which two versions of a task differ: their fields. */
export const differing = (was, is) => [...fields.values()].filter((f) => !same(f, was[f.name], is[f.name]));

/** Whether a setting's versions are compared by lines. */
export const isText = (field) => field.kind === 'sql' || field.kind === 'lines';

/** A setting's value in words. */
export function valueText(field, value) {
  if (value === null || (Array.isArray(value) && value.length === 0)) return field.none ?? t`none`;
  if (field.kind === 'list') return value.join(', ');
  if (field.kind === 'choice' || field.kind === 'truth') return new Map(field.choices).get(String(value)) ?? value;
  if (field.kind === 'json') return JSON.stringify(value);
  if (field.kind === 'rows') return rowsOf(field, value).map((row) => cellsOf(field, row).filter(Boolean).join(' ')).join(' · ');
  return value === '' ? t`empty` : String(value);
}
