/** One task: its query, its settings by tabs, its runs and versions. */

import { html, render } from '../../lib/lit-html/lit-html.js';
import { keyOf } from '../../keys.js';
import { t } from '../../lang.js';
import { every, onceAFrame } from '../../parts.js';
import { Reader, keepListed } from '../../reader.js';
import { restore } from './actions.js';
import { Display } from './display.js';
import { Form, typedOver } from './form.js';
import { Queries } from './queries.js';
import { Saving } from './saving.js';
import { fields } from './settings.js';
import { sheet, tabsOf } from './sheet.js';

export async function openTask(app, place) {
  const view = new TaskView(app, place);
  let task = null;
  let gone = false;
  if (place.name) {
    try {
      ({ task } = await app.api.task(place.name));
    } catch (e) {
      if (e.status !== 404) throw e;
      task = typedOver(app.me.user, place.name);
      if (!task) {
        view.missing();
        return;
      }
      gone = true;
    }
  }
  if (place.signal.aborted) return;
  view.start(task);
  if (gone) view.again(); // shows that the task is gone, and tries again if that can't be determined
}

/** Tabs that few look at: their modules are loaded with them. Each gives a function that makes what the tab shows, for a view. */
const rare = {
  items: () => import('./pushing.js').then(({ Pushing }) => (view) => new Pushing(view)),
  runs: () => import('./runs.js').then(({ Runs }) => ({ api, app, name, draw: changed }) => new Runs({
    read: (filter) => api.runs(name, filter), ahead: () => app.client.ahead, changed,
  })),
  versions: () => import('./versions.js').then(({ Versions }) => (view) => new Versions({
    read: (filter) => view.api.versions(view.name, filter), restore: (n) => restore(view, n), changed: view.draw,
  })),
};

class TaskView {
  constructor(app, { element, name, search, signal }) {
    Object.assign(this, { app, api: app.api, element, name, signal });
    this.asked = search.get('show'); // the tab in the address
    this.draw = onceAFrame(() => this.render(), signal);
    this.others = []; // all tasks' names
    this.inUse = ''; // why it can't be deleted
  }

  /** task: as it was read; null: a new one. */
  start(task) {
    const { app, api, name } = this;
    this.form = new Form(app.me.user, task);
    this.queries = new Queries(this);
    this.display = new Display(this);
    this.saving = new Saving(this, task);
    this.listen();
    const tabs = tabsOf(this.form.inbox);
    this.show(tabs.find(([id]) => task && id === this.asked)?.[0] ?? tabs[0][0]);
    this.fill();
    if (task && this.form.base.version !== task.version) this.saving.take(task);
    api.tasks().then((all) => {
      this.others = all.map((t) => t.name).filter((n) => n !== name);
      this.draw();
    }, () => {}); // the list is only a typing aid
  }

  /** Drawing may remove the focused element; then the title gets the focus. */
  render() {
    const at = document.activeElement;
    const here = this.element.contains(at);
    render(sheet(this), this.element);
    if (here && !at.isConnected) this.element.querySelector('h1').focus();
  }

  missing() {
    render(html`<div class="page"><h1>${t`No such task`}</h1>
      <p class="empty">${t`There is no task ${html`<b dir="auto">${this.name}</b>`}. It may have been deleted, or have another name now.`}
        <a href="/tasks">${t`All tasks`}</a></p></div>`, this.element);
  }

  listen() {
    const { app: { client }, name, signal } = this;
    const on = (type, f) => client.addEventListener(type, f, { signal });
    const runs = new Reader(async () => { if (this.runs?.rows) await this.runs.load(); }, this.draw, { signal });
    const all = new Reader(() => this.reread(), this.draw, { signal });
    this.again = () => all.again();
    on('task', (e) => { if (e.detail.name === name) this.saving.take(e.detail); });
    on('run', (e) => { if (e.detail.task === name) runs.again(); });
    keepListed(client, this.again, signal);
    document.addEventListener('keydown', (e) => this.key(e), { signal });
    const left = () => ['closed', 'unauthenticated', 'forbidden'].includes(client.state.reason); // nobody is logged in
    window.addEventListener('beforeunload', (e) => {
      if (this.form.unkept && this.form.dirty && !left()) e.preventDefault();
    }, { signal });
    this.app.keys([{ key: t`Ctrl+S`, does: t`Save` }, { key: t`Ctrl+Enter`, does: t`Preview` }], signal);
    every(1000, this.draw, signal);
    if (!name) return;
    client.subscribe([name]);
    signal.addEventListener('abort', () => client.unsubscribe([name]));
  }

  async reread() {
    const { api, form, name, saving, signal } = this;
    if (form.isNew) return;
    try {
      saving.take((await api.task(name)).task);
    } catch (e) {
      if (e.status !== 404) throw e;
      if (!saving.busy && !signal.aborted) await saving.lost(); // otherwise this page deletes or renames it
      return;
    }
    if (this.runs?.rows) await this.runs.load();
  }

  key(e) {
    if (!(e.ctrlKey || e.metaKey) || e.altKey || e.shiftKey || document.querySelector('dialog[open]')) return;
    if (keyOf(e) === 's') this.saving.save();
    else if (e.key === 'Enter' && !this.form.inbox) this.queries.preview.run();
    else return;
    e.preventDefault();
  }

  /** Shows the error of a setting that can't be sent, and leads there. */
  complain(field) {
    this.form.complain(field);
    this.lead(field.name);
  }

  type(name, text) {
    this.form.type(name, text);
    if (name === 'inbox') { // the preview is out of sight then
      this.queries.preview.stop();
      [[this.tab]] = tabsOf(this.form.inbox);
    }
    this.draw();
  }

  /** Puts into the editors what the form has. */
  fill() {
    this.queries.fill();
    this.draw();
  }

  addressOf(tab) {
    if (!this.name) return '/tasks?new=1';
    return tab === tabsOf(this.form.inbox)[0][0] ? `/tasks/${this.name}` : `/tasks/${this.name}?show=${tab}`;
  }

  show(tab) {
    if (tab !== this.tab) history.replaceState(null, '', this.addressOf(tab));
    this.tab = tab;
    if (rare[tab]) this.#rare(tab);
    if (tab === 'display' && this.form.inbox) this.#last();
    this.draw();
  }

  /** Makes what a rare tab shows, and reads its newest rows. */
  async #rare(tab) {
    if (!this[tab]) {
      const make = await rare[tab]().catch(() => this.app.say(t`It can’t be loaded now. Load the page anew.`));
      if (!make || this.signal.aborted) return;
      this[tab] ??= make(this);
    }
    if (this[tab].load && !this[tab].rows) await this[tab].load();
    this.draw();
  }

  /** Loads what asks about a conflicting change. */
  async ask() {
    const loaded = await import('./conflict.js').catch(() => this.app.say(t`It can’t be loaded now. Load the page anew.`));
    this.conflict ??= loaded?.conflict;
    this.draw();
  }

  /** Rows to show as people see them: of the query's preview, or the last item of an inbox. */
  get samples() { return this.queries.preview.result?.rows ?? this.last ?? []; }

  async #last() {
    if (this.last) return;
    const { work } = await this.api.work({ task: this.name, limit: 5 }).catch(() => ({ work: [] }));
    this.last = work.filter((w) => w.details);
    this.draw();
  }

  tabOf(name) {
    const { tab } = fields.get(name) ?? {};
    return tabsOf(this.form.inbox).some(([id]) => id === tab) ? tab : 'limits';
  }

  changedIn(tab) { return this.form.changed.some((f) => this.tabOf(f.name) === tab); }

  wrongIn(tab) { return this.form.all.some((f) => this.tabOf(f.name) === tab && this.form.error(f)); }

  /** Compares what is typed with the saved query, below it. */
  compare() {
    this.show('query');
    this.queries.compare.run();
    requestAnimationFrame(() => document.getElementById('compare-title')?.scrollIntoView({ block: 'start' }));
  }

  /** Leads to a setting; without a name, to the other user's change. */
  async lead(name) {
    if (!this.form.isNew) this.show(name ? this.tabOf(name) : ['runs', 'versions', 'items'].includes(this.tab) ? 'limits' : this.tab);
    if (!name && this.saving.theirs && !this.conflict) await this.ask();
    await new Promise(requestAnimationFrame); // until it is drawn
    const folded = name && document.getElementById(`set-${name}`)?.closest('details:not([open])');
    if (folded) folded.open = true;
    if (this.queries.has(name)) this.queries.go(name);
    else document.getElementById(name ? `set-${name}` : this.saving.gone ? 'gone-title' : 'conflict-title')?.focus();
  }

  /** Opens another address, unless the user has left the view meanwhile. */
  leadTo(path) {
    if (!this.signal.aborted) this.app.go(path, { replace: true });
  }
}
