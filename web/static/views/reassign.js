/** Gives held work to another user, whom a dialog asks for. */

import { html } from '../lib/lit-html/lit-html.js';
import { askForm } from '../dialog.js';

/** The promise has the new holder's work, or null if it was cancelled. signal closes the dialog when the view is left. */
export async function reassignDialog(app, work, signal) {
  return await askForm({
    title: `Give ${work.item} to somebody else`,
    body: html`<p class="quiet">It leaves the pipeline of <bdi>${work.user}</bdi>, who is told. The task’s rules apply to the new holder.</p>
      <div class="field"><label for="reassign-to">To whom</label>
        <input id="reassign-to" name="user" required maxlength="128" dir="auto" autocomplete="off"></div>`,
    yes: 'Give it',
    act: (form) => app.api.reassign(work.id, form.get('user').trim()),
    signal,
  }) ?? null;
}
