/** The actions of the buttons beside Save. */

import { t } from '../../lang.js';
import { ask } from '../../dialog.js';
import { hasDraft } from './form.js';
import { tagOf } from './saving.js';

const focus = (id) => requestAnimationFrame(() => document.getElementById(id)?.focus()); // once it is drawn

export async function pause({ api, app, name, saving }, paused) {
  if (saving.busy) return;
  const task = await saving.change(() => api.setPaused(name, paused));
  if (!task) return;
  app.say(paused ? t`Paused: nothing is handed out, and waiting requests keep waiting.` : t`Resumed.`);
  saving.take(task, true);
}

/** Goes back to a version. */
export async function restore(view, version) {
  const { api, app, form, name, saving, versions } = view;
  const task = await saving.change(() => api.restore(name, version, tagOf(form.base)), (is) => {
    form.rebase(is);
    view.fill();
    app.say(t`As in version ${version}; that is version ${is.version} now.`);
  });
  if (!task) return;
  await versions.load();
  document.getElementById('versions-title')?.focus();
}

/** Deletes the task, or shows that it is in use. */
export async function remove(view) {
  const { api, app, form, name, saving } = view;
  const title = form.base.title || name;
  const text = t`Nobody sees it any more, and its name is free. Its history stays.`;
  if (!await ask({ title: t`Delete ${title}?`, text, yes: t`Delete`, danger: true })) return;
  view.inUse = '';
  const gone = await saving.change(async () => {
    try {
      await api.deleteTask(name);
      return form.base;
    } catch (e) {
      if (e.type !== '/problems/in-use') throw e;
      view.inUse = e.message;
      return null;
    }
  });
  if (gone) {
    form.forget();
    app.say(t`${title} is deleted.`);
    view.leadTo('/tasks');
  } else if (view.inUse) {
    focus('in-use');
  }
}

/** Begins a new task with all of these settings. */
export async function copy({ app, form, saving }) {
  const { user } = app.me;
  const text = t`You have typed one and not created it. A copy takes its place.`;
  if (hasDraft(user, '') && !await ask({ title: t`Begin another new task?`, text, yes: t`Copy`, danger: true })) return;
  form.copy(user);
  if (saving.gone) form.forget(); // the input can't be saved elsewhere
  app.go('/tasks?new=1');
}

/** Discards the input; a newer version, if there is one, is then shown. */
export function putBack(view) {
  if (view.saving.theirs) view.saving.resolve();
  view.form.drop();
  view.fill();
  focus('bring-back');
}

export function bringBack(view) {
  view.form.bringBack();
  view.fill();
  focus('put-back');
}
