/** A task's last runs. */

import { html, nothing } from '../../lib/lit-html/lit-html.js';
import { repeat } from '../../lib/lit-html/directives/repeat.js';
import { locale, plural, t } from '../../lang.js';
import { age, took, when } from '../../parts.js';
import { Pages } from './pages.js';

const count = new Intl.NumberFormat(locale);
const kinds = { running: 'busy', finished: 'good', failed: 'bad', cancelled: '', lost: 'warn' };
const states = { running: t`running`, finished: t`finished`, failed: t`failed`, cancelled: t`cancelled`, lost: t`lost` };
const means = {
  cancelled: t`It was given up, for example since the task was changed.`,
  lost: t`The node that ran it ended; another took over.`,
};

const numbers = [t`Took`, t`Rows`, t`Held or put off`, t`Skipped`, t`Kept`, t`Version`];

/** So many items are handed out without their details. */
const withoutDetails = (n) => plural(n, '{0} without details', '{0} without details');

const counted = (n) => (n === null ? '–' : count.format(n));

export class Runs extends Pages {
  /** As of Pages; ahead(): the server's clock. */
  constructor({ read, changed, ahead }) {
    super({ what: 'runs', key: 'id', first: 25, read, changed });
    this.ahead = ahead;
  }

  template() {
    return html`${this.error ? html`<p class="error" role="alert">${this.error}</p>` : nothing}
      ${this.rows?.length === 0
        ? html`<p class="empty">${t`Its query has not run yet. It runs when somebody asks for work.`}</p>` : nothing}
      ${this.rows?.length ? this.table() : nothing}
      ${this.next ? html`<button type="button" @click=${() => this.more()}>${t`Older runs`}</button>` : nothing}`;
  }

  table() {
    return html`<div class="scroll card" tabindex="0" role="region" aria-label=${t`Runs`}>
      <table class="runs">
        <thead><tr><th scope="col">${t`State`}</th><th scope="col">${t`Began`}</th>
          ${numbers.map((title) => html`<th scope="col" class="number">${title}</th>`)}<th scope="col">${t`Node`}</th></tr></thead>
        <tbody>${repeat(this.rows, (r) => r.id, (r) => this.row(r))}</tbody>
      </table>
    </div>`;
  }

  row(r) {
    return html`<tr>
      <td><span class="badge" data-kind=${kinds[r.state]} title=${means[r.state] ?? nothing}>${states[r.state] ?? r.state}</span>${
        r.error ? html`<p class="error" dir="auto">${r.error}</p>` : nothing}</td>
      <td class="nowrap">${when(r.started_at)}</td>
      <td class="number">${r.state === 'running' ? age(r.started_at, this.ahead()) : took(r.duration_ms)}</td>
      <td class="number">${counted(r.given)}</td><td class="number">${counted(r.blocked)}</td>
      <td class="number">${r.passed_over
        ? html`<span class="badge" data-kind="warn">${count.format(r.passed_over)}</span>` : counted(r.passed_over)}</td>
      <td class="number">${counted(r.candidates)}${r.cut
        ? html` <span class="badge" title=${t`More rows were free than are kept`}>${t`cut`}</span>` : nothing}${r.details_left_out
        ? html` <span class="badge" data-kind="warn">${withoutDetails(r.details_left_out)}</span>` : nothing}</td>
      <td class="number">${r.version}</td>
      <td class="quiet" dir="auto">${r.node}</td>
    </tr>`;
  }
}
