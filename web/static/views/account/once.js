/** Secrets that are shown once. */

import { html } from '../../lib/lit-html/lit-html.js';
import { t } from '../../lang.js';

/** A field with a secret that can be copied. name: what it is, for screen readers. */
export const once = (app, id, name, secret) => html`<div class="adding"><input id=${id} readonly aria-label=${name} .value=${secret} @focus=${(e) => e.target.select()}>
  <button type="button" class="primary" @click=${() => copy(app, id, secret)}>${t`Copy`}</button></div>`;

async function copy(app, id, secret) {
  document.getElementById(id).select();
  try {
    await navigator.clipboard.writeText(secret);
    app.say(t`Copied.`);
  } catch {
    app.say(t`It is selected: copy it by keyboard.`);
  }
}
