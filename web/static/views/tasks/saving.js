/**
 * Saves a task, and handles other users' changes meanwhile. No input is lost, and no change is overwritten unseen: if a change
 * conflicts with the input, the user is asked.
 */

import { t } from '../../lang.js';
import { differing, fields } from './settings.js';

/** The tag that a change names. */
export const tagOf = (task) => `"${task.version}"`;

export class Saving {
  problem = ''; // what is wrong beyond a field
  theirs = null; // {task, versions}: another user's version that conflicts with the input
  gone = null; // {name}: the task's present name; undefined if it was deleted
  #view;
  #calls = 0; // our calls that change the task; events are handled after them
  #later = null;

  /** task: as it was read; null: a new one. */
  constructor(view, task) {
    this.#view = view;
    this.task = task; // its present state, by the newest answer or event
  }

  get busy() { return this.#calls > 0; }

  // Other users' changes.

  /** Handles the task's present state. ours: this page made the change. */
  take(task, ours = false) {
    const { form, versions } = this.#view;
    if (task.version < this.task.version) return; // it was overtaken
    this.task = task;
    this.gone = null;
    if (task.version === form.base.version && task.paused !== form.base.paused) this.#pausedOrNot(task.paused, ours || this.busy);
    this.#view.draw();
    if (this.#knows(task)) return;
    if (this.busy) {
      this.#later = task;
      return;
    }
    if (versions?.rows) versions.load();
    if (form.dirty && differing(form.base, task).length > 0) {
      this.#meet(task);
      return;
    }
    const did = task.paused === form.base.paused ? 'changed' : task.paused ? 'paused' : 'resumed';
    form.rebase(task);
    this.theirs = null;
    this.#view.fill();
    if (!ours) this.#tellWho(did);
  }

  /** Whether the input is based on this version, or the user is being asked about it. */
  #knows(task) { return task.version <= Math.max(this.#view.form.base.version, this.theirs?.task.version ?? 0); }

  /** It makes no version, and leaves alone what is typed. */
  async #pausedOrNot(paused, ours) {
    const { api, app, form, name } = this.#view;
    form.base = { ...form.base, paused };
    if (ours) return;
    const [last] = await api.taskLog(name, { limit: 1 }).then((page) => page.log, () => []);
    if (last?.act === 'paused') app.say(t`${last.by} paused this task.`);
    if (last?.act === 'resumed') app.say(t`${last.by} resumed this task.`);
  }

  async #tellWho(did) {
    const { api, app, name } = this.#view;
    const [last] = await api.versions(name, { limit: 1 }).then((page) => page.versions, () => []);
    if (!last) return;
    const { created_by: who, version } = last;
    app.say({
      changed: t`${who} changed this task. Version ${version} is shown.`,
      paused: t`${who} paused this task. Version ${version} is shown.`,
      resumed: t`${who} resumed this task. Version ${version} is shown.`,
    }[did]);
  }

  /** Asks what to do about a conflicting change, unless that was asked, or even answered, while its versions were read. */
  async #meet(task) {
    const { api, app, form, name } = this.#view;
    const [versions] = await Promise.all([api.versions(name, { limit: 100 }).then((page) => page.versions, () => []), this.#view.ask()]);
    if (this.#knows(task)) return;
    this.theirs = { task, versions: versions.filter((v) => v.version > form.base.version) };
    app.say(t`Version ${task.version} was saved while you typed.`);
    this.#view.draw();
  }

  /** The task's name no longer exists: it was renamed, and is looked up, or deleted. */
  async lost() {
    const { app, draw, signal } = this.#view;
    const name = await this.#nameNow();
    if (signal.aborted) return;
    if (!this.gone || this.gone.name !== name) app.say(name ? t`This task is called ${name} now.` : t`This task was deleted.`);
    this.gone = { name };
    draw();
  }

  /** Finds the task by its known version and name. Tasks that existed before come last. */
  async #nameNow() {
    const { api, name, others } = this.#view;
    const is = ({ version, name: then }) => version === this.task.version && then === name;
    const newer = (await api.tasks()).filter((t) => t.version > this.task.version);
    const first = newer.toSorted((a, b) => others.includes(a.name) - others.includes(b.name));
    for (const { name: now } of first.slice(0, 20)) {
      const { versions } = await api.versions(now, { limit: 100 });
      if (versions.some(is)) return now;
    }
    return undefined;
  }

  /** Opens the task under its present name; input goes along. */
  follow() {
    const { app, form } = this.#view;
    form.move(app.me.user, this.gone.name);
    this.#view.leadTo(`/tasks/${this.gone.name}`);
  }

  /** From now on the input is based on their version. */
  resolve() {
    this.#view.form.rebase(this.theirs.task);
    this.theirs = null;
    this.#view.fill();
  }

  /** Saves it over theirs. */
  saveMine() {
    this.resolve();
    this.save();
  }

  goOn() {
    this.resolve();
    document.getElementById('save').focus();
  }

  // This page's changes.

  /**
   * Makes a call that changes the task, and handles its answer. The promise has the changed task, or undefined after an error,
   * which is shown.
   */
  async change(call, taken = () => {}) {
    const { draw } = this.#view;
    this.#calls++;
    this.problem = '';
    draw();
    let task;
    try {
      task = await call();
    } catch (e) {
      await this.#refused(e);
    }
    this.#calls--;
    const later = this.#later;
    this.#later = null;
    if (task) {
      this.task = task;
      taken(task);
    }
    draw();
    if (later && later.version > (task?.version ?? 0)) this.take(later);
    return task;
  }

  async save() {
    const { api, app, form } = this.#view;
    if (this.busy) return;
    const wrong = form.wrong();
    if (wrong) this.#view.complain(wrong);
    else if (this.theirs || this.gone) this.#view.lead();
    else if (form.isNew) await this.change(() => api.createTask(form.body), (task) => this.#created(task));
    else if (form.dirty) await this.change(() => this.#update(), (task) => this.#saved(task));
    else app.say(t`There is nothing to save.`);
  }

  /** Sends the input. Another user's change meanwhile is ignored if it changed no setting, such as a pause. */
  async #update() {
    const { api, form, name } = this.#view;
    try {
      return await api.updateTask(name, form.body, tagOf(form.base));
    } catch (e) {
      if (e.type !== '/problems/stale-version') throw e;
      const { task } = await api.task(name);
      if (differing(form.base, task).length > 0) throw e;
      form.rebase(task);
      return api.updateTask(name, form.body, tagOf(task));
    }
  }

  #created(task) {
    const { app, form } = this.#view;
    form.created(app.me.user, task);
    app.say(t`Task ${task.name} is created.`);
    this.#view.leadTo(`/tasks/${task.name}`);
  }

  #saved(task) {
    const { app, form, name, versions } = this.#view;
    form.former = {};
    form.rebase(task);
    app.say(t`Saved as version ${task.version}.`);
    if (task.name !== name) {
      form.move(app.me.user, task.name);
      this.#view.leadTo(`/tasks/${task.name}`);
      return;
    }
    this.#view.fill();
    if (versions?.rows) versions.load();
  }

  /** Shows the server's error at its field, and leads there. */
  async #refused(e) {
    const { api, form, name, queries } = this.#view;
    if (e.type === '/problems/stale-version') {
      const now = await api.task(name).catch(() => null);
      if (now) {
        await this.#overtaken(now.task);
        return;
      }
    }
    const known = e.errors.map((f) => ({ ...f, field: f.field.split('.')[0] })).filter((f) => fields.has(f.field)); // display.fields is in display
    for (const { field, detail } of known) form.errors[field] = detail;
    queries.mark();
    if (known.length) this.#view.lead([...fields.keys()].find((n) => form.errors[n]));
    else if (e.status === 404) await this.lost().then(() => this.#view.lead(), () => { this.problem = e.message; });
    else this.problem = e.message;
    this.#view.draw();
  }

  /** A change was refused, because another user's came first. */
  async #overtaken(task) {
    const { form } = this.#view;
    if (form.dirty && differing(form.base, task).length > 0) {
      this.task = task;
      await this.#meet(task);
      this.#view.lead();
    } else {
      this.#later = task;
      this.problem = t`Somebody changed it a moment before. It is shown as it is now: look, and do it again.`;
    }
  }
}
