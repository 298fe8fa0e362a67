/** The user's own account: who they are here, where they are logged in, and their tokens. */

import { html, nothing, render } from '../lib/lit-html/lit-html.js';
import { t } from '../lang.js';
import { every, onceAFrame, when } from '../parts.js';
import { roleName } from '../words.js';
import { calls } from './account/calls.js';
import { Sessions } from './account/sessions.js';
import { Tokens } from './account/tokens.js';

export function open(app, { element, signal }) {
  const api = calls(app.api);
  const draw = onceAFrame(() => render(template(app, sessions, tokens), element), signal);
  const sessions = new Sessions(app, api, { draw, changed: () => tokens.again(), signal });
  const tokens = new Tokens(app, api, { draw, signal });
  app.client.addEventListener('reread', () => { sessions.again(); tokens.again(); }, { signal });
  every(60_000, () => { sessions.again(); tokens.again(); }, signal);
  draw();
}

const template = ({ me }, sessions, tokens) => html`<div class="page account">
  <h1>${t`Your account`}</h1>
  <section class="paper stack" aria-label=${t`Who you are`}>
    <dl class="facts">
      <div><dt>${t`Name`}</dt><dd dir="auto">${me.user}</dd></div>
      <div><dt>${t`Role`}</dt><dd>${[me.role, me.admin && 'administrator'].filter(Boolean).map(roleName).join(', ')}</dd></div>
      ${me.groups.length ? html`<div><dt>${t`Groups`}</dt><dd dir="auto">${me.groups.join(', ')}</dd></div>` : nothing}
      ${me.ends_at ? html`<div><dt>${t`Logged in until`}</dt><dd>${when(me.ends_at)}</dd></div>` : nothing}
    </dl>
  </section>
  ${me.by === 'session' ? sessions.template() : nothing}
  ${tokens.template()}
</div>`;
