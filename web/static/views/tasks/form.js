/**
 * A manager's unsaved changes of a task's settings. Each keystroke is in sessionStorage at once, so that neither another view
 * nor a reload loses them.
 */

import { t } from '../../lang.js';
import { defaults, differing, fields, read, same, slugOf as nameOf, textOf } from './settings.js';

/** The error of a required setting that was left empty. */
const lacks = {
  name: t`A task needs a name, such as verify-bank-account.`,
  query: t`Write a SELECT that returns a column item, best first, or make it an inbox.`,
};

const keyOf = (user, name) => `getwork draft: ${user}: ${name}`;

/** Reports whether that task has unsaved changes in this tab. */
export const hasDraft = (user, name) => sessionStorage.getItem(keyOf(user, name)) !== null;

/** The task that unsaved changes are based on; null if there are none. */
export const typedOver = (user, name) => JSON.parse(sessionStorage.getItem(keyOf(user, name)))?.base ?? null;

export class Form {
  /** task: as it was read; null: a new one. */
  constructor(user, task) {
    this.key = keyOf(user, task?.name ?? '');
    this.isNew = !task;
    this.base = task ?? defaults; // the task that the typed settings change
    this.typed = {}; // by the setting's name
    this.errors = {}; // the server's errors by setting, until it is edited
    this.former = {}; // the errors before that
    this.dropped = null; // what was typed before all of it was put back
    this.#recall();
  }

  /** Whether its items are pushed, and not found by a query. Only of a new task that can be chosen. */
  get inbox() { return this.isNew ? this.typed.inbox === true : this.base.query === null; }

  get all() { return [...fields.values()].filter((f) => this.has(f)); }

  has({ name, only }) {
    if (this.base[name] === undefined) return false; // an older node's task lacks it
    if (this.inbox && (name === 'query' || name === 'recheck')) return false;
    return !only || only === (this.inbox ? 'inbox' : 'query');
  }

  text(field) { return this.typed[field.name] ?? textOf(field, this.base[field.name]); }

  type(name, text) {
    if (name === 'name') this.named = text !== ''; // by hand: the title no longer names it, even where both happen to agree
    if (name === 'title' && this.isNew && !this.named && (this.typed.name ?? '') === nameOf(this.typed.title ?? '')) this.typed.name = nameOf(text);
    this.typed[name] = text;
    if (this.errors[name]?.includes('SQLSTATE')) this.former[name] = this.errors[name]; // an error of the query stays readable while the user corrects it
    delete this.errors[name];
    this.dropped = null;
    this.keep();
  }

  error(field) {
    const said = this.errors[field.name];
    if (said !== undefined) return said;
    return this.typed[field.name] === undefined ? '' : read(field, this.typed[field.name]).error ?? '';
  }

  /** The settings that were typed and differ from the task's; those that can't be read count. */
  get changed() {
    return this.all.filter((f) => {
      if (this.typed[f.name] === undefined) return false;
      const { value, error } = read(f, this.typed[f.name]);
      const before = this.base[f.name];
      return error ? JSON.stringify(this.typed[f.name]) !== JSON.stringify(textOf(f, before)) : !same(f, value, before);
    });
  }

  get dirty() { return this.changed.length > 0; }

  /** The body to send: only the changes, if the task exists. */
  get body() {
    const sent = Object.fromEntries(this.changed.map((f) => [f.name, read(f, this.typed[f.name]).value]));
    return this.isNew && this.inbox ? { ...sent, query: null } : sent;
  }

  /** A setting as it is typed, or the task's; what can't be read counts as not typed. */
  value(field) {
    const { value, error } = read(field, this.text(field));
    return error ? this.base[field.name] : value;
  }

  /** The first setting, or of those named, that can't be sent as it is. */
  wrong(names) {
    const sent = this.all.filter((f) => (this.isNew || this.typed[f.name] !== undefined) && (names?.includes(f.name) ?? true));
    return sent.find((f) => read(f, this.text(f)).error);
  }

  /** Shows the error of such a setting, also if it was not touched. */
  complain(field) { this.errors[field.name] = this.error(field) || lacks[field.name]; }

  /** Takes the task as it is now; what was typed stays, where it still differs. */
  rebase(task) {
    this.base = task;
    const still = new Set(this.changed.map((f) => f.name));
    for (const name of Object.keys(this.typed)) if (!still.has(name)) delete this.typed[name];
    this.keep();
  }

  /** Puts all settings back to the task's. bringBack() undoes it. */
  drop() {
    this.dropped = this.typed;
    this.typed = {};
    this.errors = {};
    this.former = {};
    this.keep();
  }

  bringBack() {
    this.typed = { ...this.dropped, ...this.typed };
    this.dropped = null;
    this.keep();
  }

  /**
   * Where typed settings and those of a newer version of the task meet: [{field, was, theirs, mine, byThem}]; mine undefined: not
   * typed. byThem: they changed it.
   */
  against(theirs) {
    const mine = new Map(this.changed.map((f) => [f.name, read(f, this.typed[f.name]).value ?? this.typed[f.name]]));
    const touched = new Set([...differing(this.base, theirs).map((f) => f.name), ...mine.keys()]);
    return [...fields.values()].filter((f) => touched.has(f.name)).map((field) => {
      const [was, is] = [this.base[field.name], theirs[field.name]];
      return { field, was, theirs: is, mine: mine.get(field.name), byThem: !same(field, was, is) };
    });
  }

  /** Writes what is typed to the tab's storage. It is full for texts beyond 5 MB alone; then a question guards the page. */
  keep() {
    try {
      if (Object.keys(this.typed).length === 0) sessionStorage.removeItem(this.key);
      else sessionStorage.setItem(this.key, JSON.stringify({ base: this.base, typed: this.typed }));
      this.unkept = false;
    } catch {
      this.unkept = true;
    }
  }

  /** Makes a draft of a new task with another name from all of these settings. */
  copy(user) {
    const copied = this.all.filter((f) => f.name !== 'name').map((f) => [f.name, this.text(f)]);
    const typed = { ...Object.fromEntries(copied), inbox: this.inbox };
    sessionStorage.setItem(keyOf(user, ''), JSON.stringify({ base: defaults, typed }));
  }

  /** The new task exists; later input becomes a change of it. */
  created(user, task) {
    this.isNew = false;
    this.rebase(task);
    this.move(user, task.name);
  }

  /** The task was renamed, and the stored changes with it. */
  move(user, name) {
    this.forget();
    this.key = keyOf(user, name);
    this.keep();
  }

  /** The input is saved, or the task is gone. */
  forget() { sessionStorage.removeItem(this.key); }

  #recall() {
    const kept = sessionStorage.getItem(this.key);
    if (!kept) return;
    const { base, typed } = JSON.parse(kept);
    this.recalled = true;
    this.typed = typed;
    if (base.version !== this.base.version) this.base = base; // it was changed since, which this form's owner will notice
  }
}
