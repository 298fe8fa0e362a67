/** A manager's actions on an item: each asks for what it needs, and returns whether something was done. */

import { html } from '../../lib/lit-html/lit-html.js';
import { ask, askForm } from '../../dialog.js';
import { reassignDialog } from '../reassign.js';

/** Gives held work to another user. */
export async function reassign(app, work, signal) {
  const given = await reassignDialog(app, work, signal);
  if (given) app.say(`${given.item} is with ${given.user} now.`);
  return Boolean(given);
}

const day = 24 * 3600;

/** Seconds from now to the next day's 9:00 by the reader's clock. */
function untilMorning() {
  const morning = new Date();
  morning.setDate(morning.getDate() + 1);
  return Math.round((morning.setHours(9, 0, 0, 0) - Date.now()) / 1000);
}

/** Closes held work in its holder's place. */
export async function letGo(app, work, signal) {
  const closed = await askForm({
    title: `Let go of ${work.item}`,
    body: html`<p class="quiet">In the place of <bdi>${work.user}</bdi>, whose pipeline it leaves.
        The history says that it was you.</p>
      <fieldset class="outcomes"><legend class="visually-hidden">What becomes of it</legend>
        <label><input type="radio" name="outcome" value="return" checked> Return it</label>
        <select name="after" aria-label="To come back">
          <option value="0">at once</option><option value="3600">after 1 h</option><option value="14400">after 4 h</option>
          <option value="morning">tomorrow 9:00</option>
          <option value=${day}>after 24 h</option><option value=${3 * day}>after 72 h</option>
        </select>
        <label class="whole"><input type="radio" name="outcome" value="complete"> Complete it: the work is done</label>
        <label class="whole"><input type="radio" name="outcome" value="never"> Never again: nobody is to have it</label>
      </fieldset>
      <div class="field"><label for="why">Note</label><textarea id="why" name="note" rows="2" dir="auto"></textarea></div>`,
    yes: 'Let go',
    act: (form) => {
      const outcome = form.get('outcome');
      const after = form.get('after') === 'morning' ? untilMorning() : form.get('after');
      return app.client.dispose(work.id, {
        outcome,
        after: outcome === 'return' ? `${after}s` : undefined,
        note: form.get('note').trim() || undefined,
      });
    },
    signal,
  });
  if (closed) app.say(`${closed.item}: ${closed.state === 'never' ? 'never again' : closed.state}.`);
  return Boolean(closed);
}

/** Puts back an item that is never to return. */
export async function redrive(app, task, item) {
  const sure = await ask({
    title: `Put ${item} back?`,
    text: 'It can be handed out again at once, and its next attempt is the first again.',
    yes: 'Put it back',
  });
  if (!sure) return false;
  const { count } = await app.api.redrive(task, [item]);
  app.say(count ? `${item} is back.` : `${item} was not never any more; nothing was changed.`);
  return true;
}

/** Takes the item into the manager's own pipeline. */
export async function claim(app, task, item) {
  await app.client.claim(task, item);
  app.say(`${item} is in your pipeline now.`);
  return true;
}
