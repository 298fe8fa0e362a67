/** Gives held work to another user, whom a dialog asks for. */

import { html, render } from '../lib/lit-html/lit-html.js';
import { t } from '../lang.js';
import { askForm } from '../dialog.js';

/**
 * The promise has the new holder's work, or null if it was cancelled. signal closes the dialog when the view is left. Those who
 * hold something now are suggested, once they are read. A name under which nobody has ever worked may be mistyped: it has to be
 * confirmed.
 */
export async function reassignDialog(app, work, signal) {
  const reading = holders(app);
  const suggestions = Object.assign(document.createElement('datalist'), { id: 'reassign-people' });
  reading.then((people) => render([...people].filter(([user]) => user !== work.user)
    .map(([user, held]) => html`<option value=${user} label=${held}></option>`), suggestions));
  let doubted = '';
  const act = async (form) => {
    const user = form.get('user').trim().normalize();
    if (user !== doubted && !(await reading).has(user) && !await worked(app, user)) {
      doubted = user;
      throw new Error(t`Nobody has worked here as “${user}” so far. If the name is right, press “Give it” once more.`);
    }
    return app.api.reassign(work.id, user);
  };
  return await askForm({
    title: t`Give ${work.item} to somebody else`,
    body: html`<p class="quiet">${t`It leaves the pipeline of ${html`<bdi>${work.user}</bdi>`}, who is told. The task’s rules apply to the new holder.`}</p>
      <div class="field"><label for="reassign-to">${t`To whom`}</label>
        <input id="reassign-to" name="user" required maxlength="128" dir="auto" autocomplete="off" list="reassign-people">
        ${suggestions}</div>`,
    yes: t`Give it`,
    act,
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

/** Reports whether anybody ever had work under that name; if it can't be said, yes. */
async function worked(app, user) {
  try {
    const { work } = await app.api.work({ user, limit: 1 });
    return work.length > 0;
  } catch {
    return true; // the server says what is wrong
  }
}
