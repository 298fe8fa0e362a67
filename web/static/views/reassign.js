/** Gives held work, or an item that nobody holds, to a user, whom a dialog asks for. */

import { html, nothing, render } from '../lib/lit-html/lit-html.js';
import { plural, t, translate } from '../lang.js';
import { askForm } from '../dialog.js';

/**
 * The promise has the new holder's work, or null if it was cancelled. signal closes the dialog when the view is left. Those who
 * hold something now are suggested, once they are read.
 */
export function reassignDialog(app, work, signal) {
  const suggestions = datalist();
  holders(app).then((people) => render([...people].filter(([user]) => user !== work.user)
    .map(([user, held]) => html`<option value=${user} label=${held}></option>`), suggestions));
  return askWhom({
    title: t`Give ${work.item} to somebody else`,
    text: t`It leaves the pipeline of ${html`<bdi>${work.user}</bdi>`}, who is told. The task’s rules apply to the new holder.`,
    suggestions,
    act: (user, force) => app.api.reassign(work.id, user, force),
    signal,
  });
}

/**
 * Gives an item of a task that nobody holds, or that has places left. could is who could have it, as an explanation says; without it
 * the item is explained first. The promise is reassignDialog's.
 */
export function giveDialog(app, { task, item, could }, signal) {
  const suggestions = datalist();
  const list = document.createElement('div');
  let known = new Set();
  const show = (people) => {
    known = new Set(people.filter(({ may }) => may).map(({ user }) => user));
    render([...known].map((user) => html`<option value=${user}></option>`), suggestions);
    render(couldList(people, (user) => Object.assign(list.closest('form').elements.user, { value: user }).focus()), list);
  };
  const stop = new AbortController();
  if (could) show(could);
  else {
    render(html`<p class="soft">${t`Looking who could have it …`}</p>`, list);
    app.api.explain(task, item, { signal: AbortSignal.any([stop.signal, signal]) }).then(async (e) => show(await inWords(e.could)))
      .catch(() => render(nothing, list)); // one can still type a name
  }
  return askWhom({
    title: t`Give ${item} to somebody`,
    text: t`It goes into their pipeline, and they are told. The task’s rules apply to them.`,
    suggestions,
    list,
    act: (user, force) => app.api.claim(task, item, { user, force: force || known.has(user) }), // whoever is here is not mistyped
    signal,
  }).finally(() => stop.abort());
}

/** Who could have an item, and why the others could not, as a list; choose(user), if given, is called for who is chosen. */
export function couldList(people, choose) {
  if (!people.length) return html`<p class="soft">${t`Nobody is here to whom it could be given. You can still name somebody.`}</p>`;
  const may = people.filter((p) => p.may);
  const not = people.filter((p) => !p.may);
  return html`${may.length ? html`<ul class="could">
    ${may.map(({ user }) => html`<li>${choose ? html`<button type="button" @click=${() => choose(user)} dir="auto">${user}</button>` : html`<b dir="auto">${user}</b>`}</li>`)}</ul>` : nothing}
    ${not.length ? html`<details class="could-not" ?open=${!may.length}><summary>${plural(not.length, 'Not to {0} person', 'Not to {0} people')}</summary>
      <ul>${[...Map.groupBy(not, (p) => p.because)].map(([because, who]) => html`<li dir="auto">${because}${who.length === 1 && because.includes(who[0].user)
        ? nothing : `: ${who.map(({ user }) => user).join(', ')}`}</li>`)}</ul></details>` : nothing}`;
}

/** An explanation's could, with its reasons in the page's language. A node of an older version has none. */
export async function inWords(could = []) {
  return Promise.all(could.map(async (c) => (c.may ? c : { ...c, because: (await translate({ status: 409, title: 'because', detail: c.because })).detail })));
}

const datalist = () => Object.assign(document.createElement('datalist'), { id: 'reassign-people' });

/** Asks for a user, and gives them something. A name that nobody has used yet may be mistyped: it has to be confirmed. */
async function askWhom({ title, text, suggestions, list = nothing, act, signal }) {
  let doubted = '';
  const give = async (form) => {
    const user = form.get('user').trim().normalize();
    try {
      return await act(user, user === doubted);
    } catch (e) {
      if (!e.errors?.some(({ field }) => field === 'force')) throw e;
      doubted = user;
      throw new Error(t`Nobody has worked here as “${user}” so far. If the name is right, press “Give it” once more.`);
    }
  };
  return await askForm({
    title,
    body: html`<p class="soft">${text}</p>
      <div class="field"><label for="reassign-to">${t`To whom`}</label>
        <input id="reassign-to" name="user" required maxlength="128" dir="auto" autocomplete="off" list="reassign-people">
        ${suggestions}</div>
      ${list}`,
    yes: t`Give it`,
    act: give,
    signal,
  }) ?? null;
}

/** Who holds something, by name: what they hold, in words. Without an answer there are no suggestions. */
async function holders(app) {
  const people = new Map();
  try {
    const [{ holders: rows }, tasks] = await Promise.all([app.api.holders({ limit: 500 }), app.api.tasks()]);
    const titles = new Map(tasks.map((task) => [task.name, task.title || task.name]));
    for (const { user, task, held } of rows) {
      const what = t`${held} of ${titles.get(task) ?? task}`;
      people.set(user, people.has(user) ? `${people.get(user)}, ${what}` : t`holds ${what}`);
    }
  } catch { /* one can still type a name */ }
  return people;
}
