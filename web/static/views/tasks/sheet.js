/** How one task is drawn: its head, its tabs, and the bar to save. */

import { html, nothing } from '../../lib/lit-html/lit-html.js';
import { live } from '../../lib/lit-html/directives/live.js';
import { locale, plural, t } from '../../lang.js';
import { age, icon, span } from '../../parts.js';
import { clock } from '../../words.js';
import { bringBack, copy, pause, putBack, remove } from './actions.js';
import { fieldOf } from './fields.js';
import { fields, groups } from './settings.js';

const count = new Intl.NumberFormat(locale);

/** The tabs of a task, by what the address calls them; the first is the one that its address shows. */
export const tabsOf = (inbox) => [
  inbox ? ['items', t`Items`] : ['query', t`Query`], ['display', t`Display`], ['limits', t`Limits`], ['access', t`Access`],
  ...(inbox ? [] : [['runs', t`Runs`]]), ['versions', t`Versions`],
];

/** All of it. view: the TaskView. */
export function sheet(view) {
  const { form } = view;
  const { changed } = form;
  document.title = `${form.isNew ? t`New task` : form.base.title || view.name} · getwork`;
  return html`<div class="page task-page">
    ${form.isNew ? html`<header class="stack"><p class="soft small"><a href="/tasks">${t`Tasks`}</a></p><h1 tabindex="-1">${t`New task`}</h1></header>` : head(view)}
    ${view.saving.gone ? gone(view) : nothing}
    ${view.inUse ? inUse(view) : nothing}
    ${view.saving.theirs && !(isSettings(view) && view.conflict) ? overtaken(view) : nothing}
    ${view.saving.theirs && isSettings(view) && view.conflict ? view.conflict({
      form,
      theirs: view.saving.theirs,
      me: view.app.me.user,
      saveMine: () => view.saving.saveMine(),
      goOn: () => view.saving.goOn(),
      loadTheirs: () => putBack(view),
    }) : nothing}
    ${form.recalled && form.dirty
      ? html`<p class="notice">${t`What you typed here before is still there, and not saved.`}</p>` : nothing}
    ${form.isNew ? whole(view, changed) : tabsOf(form.inbox).map(([id]) => panel(view, id, changed))}
    ${bar(view, changed)}
  </div>`;
}

const isSettings = ({ form, tab }) => form.isNew || ['query', 'display', 'limits', 'access'].includes(tab);

/** Another user saved a conflicting version; the settings' tabs show it, and the question about it. */
function overtaken(view) {
  const { version } = view.saving.theirs.task;
  return html`<p id="overtaken" class="notice">${t`Version ${version} was saved while you typed.`}
    <button type="button" @click=${() => view.lead()}>${t`Look at it`}</button></p>`;
}

/** A tab's content. What has editors or was read stays in the page. */
function panel(view, id, changed) {
  const shown = view.tab === id;
  return html`<div class="panel" id=${`panel-${id}`} ?hidden=${!shown}>${panels[id](view, changed, shown)}</div>`;
}

const panels = {
  query: (view, changed) => view.queries.template(changed),
  items: (view) => view.items?.template() ?? nothing,
  display: (view, changed) => html`${view.display.template(changed, typing(view))}${sets(view, changed, 'display', ['display'])}`,
  limits: (view, changed) => sets(view, changed, 'limits'),
  access: (view, changed) => sets(view, changed, 'access'),
  runs: (view) => view.runs?.template() ?? nothing,
  versions: (view) => view.versions?.template(view.form.dirty) ?? nothing,
};

const typing = (view) => (name, text) => view.type(name, text);

/** The groups of a tab's settings, without those that are drawn otherwise. */
function sets(view, changed, tab, but = []) {
  const { form } = view;
  const there = (g) => g.fields.map((f) => fields.get(f.name)).filter((f) => form.has(f) && !but.includes(f.name));
  const all = groups.filter((g) => !tab || g.tab === tab).map((g) => ({ title: g.title, fields: there(g) })).filter((g) => g.fields.length);
  return html`<div class="all-settings">${all.map((g) => html`<fieldset class="paper settings ${g.fields.some((f) => f.kind === 'rows') ? 'whole' : ''}"><legend><h2>${g.title}</h2></legend>
    <div>${g.fields.map((f) => fieldOf(f, form, changed, typing(view), view.others))}</div></fieldset>`)}</div>`;
}

/** A new task has no tabs: what most tasks need, and the rest folded. */
function whole(view, changed) {
  const { form } = view;
  const [about, ...rest] = groups;
  const set = (g) => {
    const there = g.fields.map((f) => fields.get(f.name)).filter((f) => form.has(f));
    return there.length ? html`<fieldset class="paper settings ${there.some((f) => f.kind === 'rows') ? 'whole' : ''}"><legend><h2>${g.title}</h2></legend>
      <div>${there.map((f) => fieldOf(f, form, changed, typing(view), view.others))}</div></fieldset>` : nothing;
  };
  return html`${kind(view)}${set(about)}${form.inbox ? nothing : view.queries.template(changed)}
    <details class="advanced"><summary>${t`Advanced`} <span class="soft">${t`How much somebody may take, for how long, when the query runs, what happens after a failure, and four eyes. Each has a default that is right for most tasks.`}</span></summary>
      <div class="all-settings">${rest.map(set)}</div></details>`;
}

/** How the task stands, from the server's counts; those that it doesn't have are left out. */
function standing({ form, saving: { task } }) {
  const { backlog, done_today: done, through_at: through } = task;
  const left = form.inbox ? backlog?.free ?? task.shelf : backlog?.free;
  const oldest = backlog?.oldest ? html`, ${t`the oldest for ${age(backlog.oldest)}`}` : nothing;
  return [
    ...(form.inbox ? [t`inbox`] : []),
    left === undefined ? t`not looked yet` : html`${t`${count.format(left)} left`}${oldest}`,
    plural(task.waiting, '{0} person waits', '{0} people wait'),
    t`${count.format(task.held)} held`,
    ...(form.inbox ? [] : [t`${count.format(task.shelf)} on the shelf`]),
    ...(done === undefined ? [] : [t`${count.format(done)} done today`]),
    ...(through ? [t`through by ${clock(through)}`] : []),
    t`version ${form.base.version}`,
  ];
}

function head(view) {
  const { app, form, name, saving: { busy, gone: elsewhere, task } } = view;
  const since = age(task.running_since, app.client.ahead);
  return html`<header class="stack task-head">
    <p class="soft small"><a href="/tasks">${t`Tasks`}</a> / <code>${name}</code></p>
    <div class="bar">
      <h1 tabindex="-1" dir="auto">${form.base.title || name}</h1>
      ${elsewhere ? nothing : html`${task.paused ? html`<span class="tag" data-time="half">${t`paused`}</span>` : nothing}
        ${task.failures ? html`<span class="tag loud" data-time="fifth" title=${task.last_error ?? nothing}>${icon('circle-alert')}${t`failing`}</span>` : nothing}
        ${task.running_since ? html`<span class="tag" data-time="now">${task.usual_seconds
          ? t`its query runs, ${since} of about ${span(1000 * task.usual_seconds)}` : t`its query runs, ${since}`}</span>` : nothing}
        <span class="push bar">
          <button type="button" id="pause-task" aria-disabled=${String(busy)} title=${task.paused
            ? t`Hand out work again`
            : t`Stop handing out work; held work stays held, and waiting requests keep waiting`}
            @click=${() => pause(view, !task.paused)}>${task.paused ? html`${icon('play')}${t`Resume`}` : html`${icon('pause')}${t`Pause`}`}</button>
          <button type="button" class="icon" id="more-actions" aria-label=${t`More actions`} popovertarget="task-menu">${icon('ellipsis')}</button>
        </span>`}
    </div>
    ${elsewhere ? nothing : html`<div id="task-menu" class="menu-of here" popover @click=${(e) => { if (e.target.closest('a, button')) e.currentTarget.hidePopover(); }}>
      <a href=${`/items?task=${name}`}>${t`Find an item`}</a>
      <a href=${`/webhooks?task=${name}`}>${t`Web hooks`}</a>
      <button type="button" id="copy-task" title=${t`Begin a new task with these settings`} @click=${() => copy(view)}>${t`Copy`}</button>
      <button type="button" class="danger" id="delete-task" @click=${() => remove(view)}>${t`Delete …`}</button>
    </div>
    <p class="soft standing">${standing(view).map((one, i) => html`${i ? ' · ' : ''}${one}`)}</p>`}
    ${task.failures && task.last_error && !elsewhere ? html`<p class="error" dir="auto">${t`Its query failed last: ${task.last_error}`}</p>` : nothing}
    ${task.paused && !elsewhere ? html`<p class="notice">${t`Paused: nothing is handed out. Held work stays held, and waiting requests keep waiting.`}</p>` : nothing}
    <nav class="tabs" aria-label=${t`Settings of the task`}>${tabsOf(form.inbox).map(([id, title]) => tab(view, id, title))}</nav>
  </header>`;
}

/** A tab has an address, and is shown without leaving the page: what is typed and previewed stays. */
function tab(view, id, title) {
  const show = (e) => {
    if (e.ctrlKey || e.metaKey || e.shiftKey || e.altKey) return;
    e.preventDefault();
    view.show(id);
  };
  const wrong = view.wrongIn(id);
  return html`<a id=${`tab-${id}`} href=${view.addressOf(id)} aria-current=${id === view.tab ? 'page' : nothing} @click=${show}>${title}${
    wrong ? html` <span class="tag" data-time="fifth">${t`to correct`}</span>` : view.changedIn(id) ? html` <span class="tag" data-time="now">${t`changed`}</span>` : nothing}</a>`;
}

/** Another user renamed or deleted the task. No input is lost. */
function gone(view) {
  const { form, saving } = view;
  const { name } = saving.gone;
  const title = name ? t`This task is called ${html`<bdi>${name}</bdi>`} now.` : t`This task was deleted.`;
  const typed = name ? t`What you typed is not saved; it goes along.` : t`What you typed is kept in this tab, and not saved.`;
  return html`<section id="gone" class="notice" aria-labelledby="gone-title">
    <p><b id="gone-title" tabindex="-1">${title}</b> ${form.dirty ? typed : nothing}</p>
    <div class="bar">${name
      ? html`<button type="button" id="follow" @click=${() => saving.follow()}>${t`Go on there`}</button>`
      : html`<button type="button" id="copy-task" @click=${() => copy(view)}>${t`Make a new task of it`}</button>
          <a class="button" href="/tasks">${t`All tasks`}</a>`}</div>
  </section>`;
}

function inUse(view) {
  const leave = () => {
    view.inUse = '';
    view.draw();
  };
  return html`<section class="notice" aria-labelledby="in-use">
    <h2 id="in-use" tabindex="-1">${t`It can’t be deleted yet`}</h2>
    <p dir="auto">${view.inUse}.</p>
    <div class="bar"><a class="button" href=${`/items?release=1&task=${view.name}`}>${t`Take its work back …`}</a>
      ${view.saving.task.paused ? nothing : html`<button type="button" @click=${() => pause(view, true)}>${t`Pause it`}</button>`}
      <button type="button" class="plain" @click=${leave}>${t`Leave it`}</button></div>
  </section>`;
}

function kind(view) {
  const choice = (inbox, title, help) => html`<label class="check"><input type="radio" name="kind"
      .checked=${live(view.form.inbox === inbox)} @change=${() => view.type('inbox', inbox)}>
    <span><b>${title}</b> <span class="soft">${help}</span></span></label>`;
  return html`<fieldset class="paper settings kind"><legend><h2>${t`Where its items come from`}</h2></legend>
    ${choice(false, t`A query finds them`, t`in your tables, best first, whenever somebody asks for work.`)}
    ${choice(true, t`They are pushed: an inbox`, t`by programs, one by one. This can’t be changed later.`)}</fieldset>`;
}

/** The unsaved changes, and the buttons to save them; it stays visible. */
function bar(view, changed) {
  const { form, saving } = view;
  if (changed.length === 0 && !saving.problem && !form.dropped && !isSettings(view)) return nothing;
  let text = changed.length ? t`Not saved: ${changed.map((f) => f.label).join(', ')}.` : t`Nothing to save.`;
  if (form.isNew) text = t`What you type is kept in this tab until you create the task or log out.`;
  if (form.dropped) text = t`What you typed was taken out.`;
  const compared = !form.isNew && !saving.gone && changed.some((f) => f.name === 'query');
  return html`<div class="saver" role="region" aria-label=${t`Save`}>
    <p class="soft" id="unsaved">${text}</p>
    <p class="error" role="alert" dir="auto">${saving.problem}</p>
    <span class="push bar">
      ${form.dropped
        ? html`<button type="button" id="bring-back" @click=${() => bringBack(view)}>${t`Restore`}</button>` : nothing}
      ${compared ? html`<button type="button" id="compare-now" @click=${() => view.compare()}>${t`Compare with version ${form.base.version}`}</button>` : nothing}
      ${changed.length ? html`<button type="button" id="put-back" @click=${() => putBack(view)}>${t`Discard`}</button>` : nothing}
      <button type="button" id="save" class="primary" aria-keyshortcuts="Control+S"
          aria-disabled=${String(saving.busy || !(form.isNew || form.dirty))}
          @click=${() => saving.save()}>${form.isNew ? t`Create` : t`Save`} <kbd>${t`Ctrl+S`}</kbd></button>
    </span>
  </div>`;
}
