/** How one task is drawn: its head, the tabs with its settings and query, versions and runs, and the bar to save. */

import { html, nothing } from '../../lib/lit-html/lit-html.js';
import { live } from '../../lib/lit-html/directives/live.js';
import { t } from '../../lang.js';
import { age, span } from '../../parts.js';
import { bringBack, copy, pause, putBack, remove } from './actions.js';
import { conflict } from './conflict.js';
import { fieldOf } from './fields.js';
import { fields, groups } from './settings.js';

/** The tabs, by what the address calls them. */
export const tabs = [['edit', t`Settings and query`], ['versions', t`Versions`], ['runs', t`Runs`]];

/** All of it. view: the TaskView. */
export function sheet(view) {
  const { form } = view;
  const { changed } = form;
  document.title = `${form.isNew ? t`New task` : form.base.title || view.name} · getwork`;
  return html`<div class="page task-page">
    ${form.isNew ? html`<header><p><a href="/tasks">${t`Tasks`}</a></p><h1 tabindex="-1">${t`New task`}</h1></header>` : head(view)}
    ${view.saving.gone ? gone(view) : nothing}
    ${view.inUse ? inUse(view) : nothing}
    ${form.isNew ? nothing : tabList(view)}
    ${view.saving.theirs && view.tab !== 'edit' ? overtaken(view) : nothing}
    ${panel(view, 'edit', settings(view, changed))}
    ${form.isNew ? nothing : html`${panel(view, 'versions', html`
        <h2 id="versions-title" tabindex="-1" class="visually-hidden">${t`Versions`}</h2>${view.versions.template(form.dirty)}`)}
      ${panel(view, 'runs', html`<h2 class="visually-hidden">${t`Runs`}</h2>${view.runs.template()}`)}`}
    ${bar(view, changed)}
  </div>`;
}

/** A tab's content; a new task has no tabs, and shows everything. */
function panel({ form, tab }, id, content) {
  return html`<div class="panel" id=${`panel-${id}`} role=${form.isNew ? nothing : 'tabpanel'}
      aria-labelledby=${form.isNew ? nothing : `tab-${id}`} ?hidden=${tab !== id}>${content}</div>`;
}

function head(view) {
  const { app, form, name, saving: { busy, gone: elsewhere, task } } = view;
  const standing = [
    form.inbox ? t`inbox` : t`query`, t`version ${form.base.version}`, t`${task.waiting} waiting`, t`${task.held} held`,
    form.inbox ? t`${task.shelf} ready` : t`${task.shelf} on the shelf`,
    ...(form.inbox || !task.backlog ? [] : [t`${task.backlog.free} of ${task.backlog.found} free in the last run`]),
  ].join(' · ');
  const since = age(task.running_since, app.client.ahead);
  return html`<header class="task-head">
    <p><a href="/tasks">${t`Tasks`}</a></p>
    <div class="toolbar">
      <h1 tabindex="-1" dir="auto">${form.base.title || name}</h1>
      ${task.paused && !elsewhere ? html`<span class="badge" data-kind="warn">${t`paused`}</span>` : nothing}
      ${task.running_since && !elsewhere ? html`<span class="badge"
          data-kind="busy">${task.usual_seconds
          ? t`its query runs, ${since} of about ${span(1000 * task.usual_seconds)}` : t`its query runs, ${since}`}</span>` : nothing}
      ${elsewhere ? nothing : html`<span class="toolbar push">
        <button type="button" id="pause" aria-disabled=${String(busy)} title=${task.paused
          ? t`Hand out work again`
          : t`Stop handing out work; held work stays held, and waiting requests keep waiting`}
          @click=${() => pause(view, !task.paused)}>${task.paused ? t`Resume` : t`Pause`}</button>
        <button type="button" id="copy" title=${t`Begin a new task with these settings`} @click=${() => copy(view)}>${t`Copy`}</button>
        <button type="button" id="delete" @click=${() => remove(view)}>${t`Delete …`}</button>
      </span>`}
    </div>
    <p class="quiet"><code>${name}</code>${elsewhere ? nothing : html` · ${standing} ·
      <a href=${`/items?task=${name}`}>${t`Find an item`}</a> · <a href=${`/webhooks?task=${name}`}>${t`Web hooks`}</a>`}</p>
    ${task.paused && !elsewhere ? html`<p class="notice">${t`Paused: nothing is handed out. Held work stays held, and waiting requests keep waiting.`}</p>` : nothing}
  </header>`;
}

/** Another user renamed or deleted the task. No input is lost. */
function gone(view) {
  const { form, saving } = view;
  const { name } = saving.gone;
  const title = name ? t`This task is called ${html`<bdi>${name}</bdi>`} now.` : t`This task was deleted.`;
  const typed = name ? t`What you typed is not saved; it goes along.` : t`What you typed is kept in this tab, and not saved.`;
  return html`<section id="gone" class="card notice" aria-labelledby="gone-title">
    <p><b id="gone-title" tabindex="-1">${title}</b> ${form.dirty ? typed : nothing}</p>
    <div class="toolbar">${name
      ? html`<button type="button" id="follow" @click=${() => saving.follow()}>${t`Go on there`}</button>`
      : html`<button type="button" id="copy" @click=${() => copy(view)}>${t`Make a new task of it`}</button>
          <a class="button" href="/tasks">${t`All tasks`}</a>`}</div>
  </section>`;
}

/** Another user saved a conflicting version; another tab shows it, and the question about it. */
function overtaken(view) {
  const { version } = view.saving.theirs.task;
  return html`<p id="overtaken" class="notice">${t`Version ${version} was saved while you typed.`}
    <button type="button" @click=${() => view.lead()}>${t`Look at it`}</button></p>`;
}

function inUse(view) {
  const leave = () => {
    view.inUse = '';
    view.draw();
  };
  return html`<section class="card notice" aria-labelledby="in-use">
    <h2 id="in-use" tabindex="-1">${t`It can’t be deleted yet`}</h2>
    <p dir="auto">${view.inUse}.</p>
    <div class="toolbar"><a class="button" href=${`/items?release=1&task=${view.name}`}>${t`Take its work back …`}</a>
      ${view.saving.task.paused ? nothing : html`<button type="button" @click=${() => pause(view, true)}>${t`Pause it`}</button>`}
      <button type="button" class="plain" @click=${leave}>${t`Leave it`}</button></div>
  </section>`;
}

function tabList(view) {
  const move = (e) => {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[e.key];
    if (!by) return;
    const [id] = tabs[(tabs.findIndex(([t]) => t === view.tab) + by + tabs.length) % tabs.length];
    view.show(id);
    document.getElementById(`tab-${id}`).focus();
  };
  return html`<div class="tabs" role="tablist" aria-label=${t`This task`} @keydown=${move}>${tabs.map(([id, title]) => html`<button
    type="button" role="tab" id=${`tab-${id}`} aria-controls=${`panel-${id}`} aria-selected=${id === view.tab}
    tabindex=${id === view.tab ? 0 : -1} @click=${() => view.show(id)}>${title}</button>`)}</div>`;
}

function settings(view, changed) {
  const { app, form, saving } = view;
  const typed = (name, text) => view.type(name, text);
  const there = (g) => g.fields.map((f) => fields.get(f.name)).filter((f) => form.has(f));
  const [about, ...rules] = groups.map((g) => ({ title: g.title, fields: there(g) })).filter((g) => g.fields.length);
  const set = (g) => html`<fieldset class="card settings"><legend>${g.title}</legend>
    <div>${g.fields.map((f) => fieldOf(f, form, changed, typed, view.others))}</div></fieldset>`;
  return html`${saving.theirs ? conflict({
      form,
      theirs: saving.theirs,
      me: app.me.user,
      saveMine: () => saving.saveMine(),
      goOn: () => saving.goOn(),
      loadTheirs: () => putBack(view),
    }) : nothing}
    ${form.recalled && form.dirty
      ? html`<p class="notice">${t`What you typed here before is still there, and not saved.`}</p>` : nothing}
    ${form.isNew ? kind(view) : nothing}
    ${set(about)}
    ${form.inbox ? nothing : view.queries.template(changed)}
    ${form.isNew ? html`<details class="advanced"><summary>${t`Advanced`} <span class="quiet">${t`How much somebody may take, for how long, when the query runs, what happens after a failure, and four eyes. Each has a default that is right for most tasks.`}</span></summary>
      <div class="all-settings">${rules.map(set)}</div></details>`
    : html`<div class="all-settings">${rules.map(set)}</div>`}`;
}

function kind(view) {
  const choice = (inbox, title, help) => html`<label><input type="radio" name="kind"
      .checked=${live(view.form.inbox === inbox)} @change=${() => view.type('inbox', inbox)}>
    <span><b>${title}</b> <span class="quiet">${help}</span></span></label>`;
  return html`<fieldset class="card settings kind"><legend>${t`Where its items come from`}</legend>
    ${choice(false, t`A query finds them`, t`in your tables, best first, whenever somebody asks for work.`)}
    ${choice(true, t`They are pushed: an inbox`, t`by programs, one by one. This can’t be changed later.`)}</fieldset>`;
}

/** The unsaved changes, and the buttons to save them; it stays visible. */
function bar(view, changed) {
  const { form, saving } = view;
  if (!form.isNew && changed.length === 0 && !saving.problem && view.tab !== 'edit') return nothing;
  let text = changed.length ? t`Not saved: ${changed.map((f) => f.label).join(', ')}.` : t`Nothing to save.`;
  if (form.isNew) text = t`What you type is kept in this tab until you create the task or log out.`;
  if (form.dropped) text = t`What you typed was taken out.`;
  return html`<div class="save-bar" role="region" aria-label=${t`Save`}>
    <p class="quiet" id="unsaved">${text}</p>
    <p class="error" role="alert" dir="auto">${saving.problem}</p>
    <span class="toolbar push">
      ${form.dropped
        ? html`<button type="button" id="bring-back" @click=${() => bringBack(view)}>${t`Restore`}</button>` : nothing}
      ${changed.length ? html`<button type="button" id="put-back" @click=${() => putBack(view)}>${t`Discard`}</button>` : nothing}
      <button type="button" id="save" class="primary" aria-keyshortcuts="Control+S"
          aria-disabled=${String(saving.busy || !(form.isNew || form.dirty))}
          @click=${() => saving.save()}>${form.isNew ? t`Create` : t`Save`} <kbd>${t`Ctrl+S`}</kbd></button>
    </span>
  </div>`;
}
