/** A link for a screen on a wall. It can be opened once; the screen then shows counts, and nothing else, until its session ends. */

import { html } from '../../lib/lit-html/lit-html.js';
import { plural, t } from '../../lang.js';
import { askForm, newDialog } from '../../dialog.js';
import { fully } from '../../words.js';
import { once } from '../account/once.js';

const days = [1, 7, 30];

/** Asks for a name, and shows the link. The promise says whether one was made. */
export async function screenLink(app, calls, signal) {
  const made = await askForm({
    title: t`Link for a screen`,
    body: html`<p>${t`A screen on a wall has nobody who logs in. Open the link there within an hour; it works once. The screen shows counts, and nothing else.`}</p>
      <div class="field"><label for="screen-user">${t`Name of the screen`}</label>
        <input id="screen-user" name="user" required maxlength="128" autocomplete="off" value="wall"></div>
      <div class="field"><label for="screen-days">${t`Logged in for`}</label>
        <select id="screen-days" name="days">${days.map((n) => html`<option value=${n} ?selected=${n === 30}>${plural(n, '{0} day', '{0} days')}</option>`)}</select></div>`,
    yes: t`Make the link`,
    act: (form) => calls.createWall(form.get('user').trim(), `${24 * form.get('days')}h`),
    signal,
  });
  if (!made) return false;
  const dialog = newDialog('ask account', signal);
  dialog.draw(html`<form method="dialog">
    <h2 id="dialog-title">${t`Copy the link now: it is shown only this once`}</h2>
    <div class="made">${once(app, 'the-link', t`The link`, made.url)}</div>
    <p>${t`Open it on the screen before ${fully(made.opens_until)}.`}</p>
    <div class="bar"><button>${t`Done`}</button></div>
  </form>`);
  await dialog.closed;
  return true;
}
