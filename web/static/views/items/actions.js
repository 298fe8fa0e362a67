/** A manager's actions on an item: each asks for what it needs, and returns whether something was done. */

import { html } from '../../lib/lit-html/lit-html.js';
import { t } from '../../lang.js';
import { ask, askForm } from '../../dialog.js';
import { untilTomorrow } from '../../now.js';
import { states } from '../../words.js';
import { giveDialog, reassignDialog } from '../reassign.js';

/** Gives held work to another user. */
export async function reassign(app, work, signal) {
  const given = await reassignDialog(app, work, signal);
  if (given) app.say(t`${given.item} is with ${given.user} now.`);
  return Boolean(given);
}

/** Gives an item that nobody asked for; could: to whom it could go. */
export async function give(app, of, signal) {
  const given = await giveDialog(app, of, signal);
  if (given) app.say(t`${given.item} is with ${given.user} now.`);
  return Boolean(given);
}

const day = 24 * 3600;

/** Closes held work in its holder's place. */
export async function letGo(app, work, signal) {
  const closed = await askForm({
    title: t`Let go of ${work.item}`,
    body: html`<p class="soft">${t`In the place of ${html`<bdi>${work.user}</bdi>`}, whose pipeline it leaves. The history says that it was you.`}</p>
      <fieldset class="ways"><legend class="sr">${t`What becomes of it`}</legend>
        <label><input type="radio" name="outcome" value="return" checked> ${t`Return it`}</label>
        <select name="after" aria-label=${t`To come back`}>
          <option value="0">${t`at once`}</option><option value="3600">${t`after 1 h`}</option><option value="14400">${t`after 4 h`}</option>
          <option value="morning">${t`tomorrow 9:00`}</option>
          <option value=${day}>${t`after 24 h`}</option><option value=${3 * day}>${t`after 72 h`}</option>
        </select>
        <label class="whole"><input type="radio" name="outcome" value="complete"> ${t`Complete it: the work is done`}</label>
        <label class="whole"><input type="radio" name="outcome" value="never"> ${t`Never again: nobody is to have it`}</label>
      </fieldset>
      <div class="field"><label for="why">${t`Note`}</label><textarea id="why" name="note" rows="2" dir="auto"></textarea></div>`,
    yes: t`Let go`,
    act: (form) => {
      const outcome = form.get('outcome');
      const after = form.get('after') === 'morning' ? untilTomorrow() : `${form.get('after')}s`;
      return app.client.dispose(work.id, {
        outcome,
        after: outcome === 'return' ? after : undefined,
        note: form.get('note').trim() || undefined,
      });
    },
    signal,
  });
  if (closed) app.say(`${closed.item}: ${closed.state === 'never' ? t`never again` : states[closed.state]}.`);
  return Boolean(closed);
}

/** Puts back an item that is never to return. */
export async function redrive(app, task, item) {
  const sure = await ask({
    title: t`Put ${item} back?`,
    text: t`It can be handed out again at once, and its next attempt is the first again.`,
    yes: t`Put it back`,
  });
  if (!sure) return false;
  const { count } = await app.api.redrive(task, [item]);
  app.say(count ? t`${item} is back.` : t`${item} was not never any more; nothing was changed.`);
  return true;
}

/** Takes the item into the manager's own pipeline. */
export async function claim(app, task, item) {
  await app.client.claim(task, item);
  app.say(t`${item} is in your pipeline now.`);
  return true;
}
