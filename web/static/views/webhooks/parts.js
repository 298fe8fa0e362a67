/** What the list of web hooks and the view of one share. */

import { html, nothing } from '../../lib/lit-html/lit-html.js';
import { locale, plural, t } from '../../lang.js';
import { every, when } from '../../parts.js';
import { Reader, byTitle, keepListed } from '../../reader.js';
import { once } from '../account/once.js';

export const kinds = ['work.assigned', 'work.closed', 'work.expired', 'run.failed', 'alert.begun', 'alert.ended'];
export const forms = { getwork: t`another program`, slack: t`a channel of Slack`, teams: t`a channel of Teams` };
const most = 1000; // up to which the server counts

/** A count of the server's. */
export const count = (n) => `${n.toLocaleString(locale)}${n >= most ? '+' : ''}`;

/** The address of a web hook's view. state: of the deliveries that it shows. */
export const address = (id, state) => `/webhooks?${new URLSearchParams({ hook: id, ...(state && { state }) })}`;

/** A URL that may go on in the next line after each of its parts. */
export const inParts = (url) => url.split(/(?<=[^:/][/?&])/).map((part) => html`${part}<wbr>`);

/** The events that it is told of. */
export const events = ({ events: names }) => (kinds.every((kind) => names.includes(kind)) ? t`all events`
  : names.map((name, i) => html`${i ? ', ' : ''}<code>${name}</code>`));

/** How its last attempts went. ahead: client.ahead */
export function health({ failures, retry_at: next }, ahead) {
  if (!failures) return t`no failures`;
  const waits = Date.parse(next) > Date.now() + ahead;
  return html`<span class="tag" data-time="fifth">${t`failing`}</span> <span class="soft small">${
    plural(failures, '{0} failure in a row', '{0} failures in a row')}${waits ? html`, ${t`next attempt ${when(next)}`}` : nothing}</span>`;
}

/** The tasks that the user can see. An administrator without a role sees none. */
export class Tasks {
  all = null; // as they are shown; null: not known yet

  constructor({ client, api, me }, changed, signal) {
    if (!me.role) return;
    const list = new Reader(() => api.tasks(), () => {
      this.all = list.value?.toSorted(byTitle) ?? null;
      changed();
    }, { signal });
    keepListed(client, () => list.again(), signal);
    list.again();
  }

  /** A task's title, or that it is all. */
  title(name) {
    if (name === null) return t`All tasks`;
    return this.all?.find((task) => task.name === name)?.title || name;
  }
}

const often = 10_000; // ms between two reads

/** Calls read() from time to time: the live channel does not tell of deliveries. */
export function follow(client, read, signal) {
  every(often, read, signal);
  client.addEventListener('reread', read, { signal });
}

/** A secret, which is shown this once. more: what else there is to say; done() removes it. */
export const shown = (app, secret, more, done) => html`<section class="paper stack" aria-labelledby="secret-title"><div class="made">
  <p id="secret-title" role="status"><b>${t`Copy the secret now: it is shown only this once.`}</b></p>
  ${once(app, 'the-secret', t`The secret`, secret)}
  <p class="soft small">${t`The receiver needs it to check the signatures.`} ${more}</p>
  <button type="button" @click=${done}>${t`Done`}</button>
</div></section>`;
