/** A task's last runs. */

import { html, nothing } from '../../lib/lit-html/lit-html.js';
import { repeat } from '../../lib/lit-html/directives/repeat.js';
import { locale, plural, t } from '../../lang.js';
import { age, took, when } from '../../parts.js';
import { Pages } from './pages.js';

const count = new Intl.NumberFormat(locale);
const kinds = { running: 'now', finished: 'ok', failed: 'fifth', cancelled: 'none', lost: 'half' };
const states = { running: t`running`, finished: t`finished`, failed: t`failed`, cancelled: t`cancelled`, lost: t`lost` };
const means = {
  cancelled: t`It was given up, for example since the task was changed.`,
  lost: t`The node that ran it ended; another took over.`,
};

const numbers = [t`Took`, t`Rows`, t`Held or put off`, t`Skipped`, t`Kept`, t`Version`];

/** So many items are handed out without their details. */
const withoutDetails = (n) => plural(n, '{0} without details', '{0} without details');

const counted = (n) => (n ? count.format(n) : html`<span class="none">–</span>`);

export class Runs extends Pages {
  /** As of Pages; ahead(): the server's clock. */
  constructor({ read, changed, ahead }) {
    super({ what: 'runs', key: 'id', first: 25, read, changed });
    this.ahead = ahead;
  }

  template() {
    return html`<section class="paper stack" aria-labelledby="runs-title">
      <div class="head"><h2 id="runs-title">${t`Runs`}</h2><span class="count">${t`each is the query once, for everybody who waits`}</span></div>
      ${this.error ? html`<p class="error" role="alert">${this.error}</p>` : nothing}
      ${this.rows?.length === 0
        ? html`<p class="empty">${t`Its query has not run yet. It runs when somebody asks for work.`}</p>` : nothing}
      ${this.rows?.length ? this.table() : nothing}
      ${this.next ? html`<p><button type="button" @click=${() => this.more()}>${t`Older runs`}</button></p>` : nothing}
    </section>`;
  }

  table() {
    return html`<div class="scroll" tabindex="0" role="region" aria-labelledby="runs-title">
      <table class="runs">
        <thead><tr><th scope="col">${t`State`}</th><th scope="col">${t`Began`}</th>
          ${numbers.map((title) => html`<th scope="col" class="num">${title}</th>`)}<th scope="col">${t`Node`}</th></tr></thead>
        <tbody>${repeat(this.rows, (r) => r.id, (r) => this.row(r))}</tbody>
      </table>
    </div>`;
  }

  row(r) {
    return html`<tr>
      <td><span class="tag" data-time=${kinds[r.state] ?? 'none'} title=${means[r.state] ?? nothing}>${states[r.state] ?? r.state}</span>${
        r.error ? html`<p class="error" dir="auto">${r.error}</p>` : nothing}</td>
      <td class="nowrap">${when(r.started_at)}</td>
      <td class="num">${r.state === 'running' ? age(r.started_at, this.ahead()) : took(r.duration_ms)}</td>
      <td class="num">${counted(r.given)}</td><td class="num">${counted(r.blocked)}</td>
      <td class="num">${r.passed_over
        ? html`<span class="tag" data-time="half">${count.format(r.passed_over)}</span>` : counted(r.passed_over)}</td>
      <td class="num">${counted(r.candidates)}${r.cut
        ? html` <span class="tag" data-time="none" title=${t`More rows were free than are kept`}>${t`cut`}</span>` : nothing}${r.details_left_out
        ? html` <span class="tag" data-time="half">${withoutDetails(r.details_left_out)}</span>` : nothing}</td>
      <td class="num">${r.version}</td>
      <td class="soft" dir="auto">${r.node}</td>
    </tr>`;
  }
}
