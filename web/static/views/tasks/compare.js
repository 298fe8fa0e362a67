/** How the query in the editor would rank the task's items, beside the saved one: what comes in, falls out and moves. Nothing is saved. */

import { html, nothing } from '../../lib/lit-html/lit-html.js';
import { locale, plural, t } from '../../lang.js';
import { took } from '../../parts.js';
import { elapsed } from '../../words.js';
import { microseconds } from './settings.js';

const count = new Intl.NumberFormat(locale);

/** How long a call may take beside the queries: see Preview. */
const patience = 60_000;

export class Compare {
  /**
   * ask(query, limit, {signal, within}) calls the server; text() is what is in the editor; timeout(): how long a query may take;
   * refused(problem, text) is told that it gave nothing; changed() is called when there is something new to show.
   */
  constructor({ ask, text, timeout, refused, changed, say, signal }) {
    Object.assign(this, { ask, text, timeout, refused, changed, say });
    this.limit = 100;
    this.state = 'none'; // running, done, failed, given up
    signal.addEventListener('abort', () => this.stop());
  }

  async run() {
    this.stop();
    const text = this.text();
    const aborted = new AbortController();
    this.under = { aborted, since: Date.now() };
    this.state = 'running';
    this.changed();
    try {
      const within = patience + 1.5 * (microseconds(this.timeout()) / 1000);
      const result = await this.ask(text, this.limit, { signal: aborted.signal, within });
      if (this.under?.aborted !== aborted) return;
      Object.assign(this, { result, of: text });
      this.end('done');
      this.say(this.summary());
    } catch (e) {
      if (this.under?.aborted !== aborted) return;
      this.problem = e;
      this.end('failed');
      this.refused(e, text);
    }
  }

  /** Aborts the comparison under way. The server ends the queries, too. */
  stop() {
    if (!this.under) return;
    this.under.aborted.abort();
    this.end('given up');
  }

  end(state) {
    if (document.activeElement?.id === 'compare-stop') document.getElementById('compare-run').focus();
    this.state = state;
    this.under = null;
    this.changed();
  }

  /** What differs, in a sentence. */
  summary() {
    const { in: into, out, moved } = this.result;
    if (!into) return t`The saved query fails, so there is nothing to compare with.`;
    if (into.length + out.length + moved.length === 0) return t`Among the best, nothing changes.`;
    return t`Among the best: ${[
      plural(into.length, '{0} comes in', '{0} come in'), plural(out.length, '{0} falls out', '{0} fall out'), plural(moved.length, '{0} moves', '{0} move'),
    ].join(', ')}.`;
  }

  /** version: the saved one's number. */
  template(version) {
    const running = this.state === 'running';
    return html`<section class="paper stack preview" id="compare" aria-labelledby="compare-title" aria-busy=${running}>
      <div class="head">
        <h2 id="compare-title" tabindex="-1">${t`Compare with version ${version}`}</h2>
        <span class="push bar">
          <label for="compare-limit" class="soft small">${t`The best`}</label>
          <select id="compare-limit" @change=${(e) => { this.limit = Number(e.target.value); }}>
            ${[10, 100, 1000].map((n) => html`<option value=${n} ?selected=${n === this.limit}>${count.format(n)}</option>`)}
          </select>
          ${running ? html`<button type="button" id="compare-stop" @click=${() => this.stop()}>${t`Give up`}</button>` : nothing}
          <button type="button" id="compare-run" @click=${() => this.run()}>${t`Compare`}</button>
        </span>
      </div>
      ${running ? html`<progress data-time="now" aria-hidden="true"></progress>
        <p><span role="status">${t`Both queries are running.`}</span> <span class="clock">${elapsed(Date.now() - this.under.since)}</span></p>` : nothing}
      ${this.state === 'failed' ? html`<p class="error" role="alert" dir="auto">${this.problem.message}</p>` : nothing}
      ${this.state === 'given up' ? html`<p class="soft small">${t`Given up.`}</p>` : nothing}
      ${this.result ? this.found() : nothing}
      ${this.state === 'none' ? html`<p class="soft small">${t`Runs both queries on the same data, and shows what the one in the editor ranks differently.`}</p>` : nothing}
    </section>`;
  }

  found() {
    const { old, new: now, in: into, out, moved, overlap, version } = this.result;
    const former = this.of !== this.text();
    return html`<div class="stack found ${former ? 'former' : ''}">
      ${former ? html`<p><span class="tag" data-time="half">${t`Of a former text of the query`}</span></p>` : nothing}
      <p>${this.summary()}</p>
      ${old.error ? html`<p class="error" dir="auto">${old.error}</p>` : nothing}
      ${overlap ? html`<p>${overlap.filter((o, i) => o.of > 0 && (i === 0 || o.of > overlap[i - 1].best)).map((o) =>
        plural(o.common, 'Of the best {1}, {0} is the same.', 'Of the best {1}, {0} are the same.', count.format(o.of))).join(' ')}</p>` : nothing}
      <div class="scroll" tabindex="0" role="region" aria-label=${t`What both cost`}>
        <table class="rows">
          <thead><tr><th scope="col">${t`Query`}</th><th scope="col" class="num">${t`Rows`}</th><th scope="col" class="num">${t`Skipped`}</th>
            <th scope="col" class="num">${t`Taken`}</th><th scope="col" class="num">${t`Planned cost`}</th></tr></thead>
          <tbody>${[[t`Version ${version}`, old], [t`In the editor`, now]].map(([name, r]) => html`<tr><th scope="row">${name}</th>
            <td class="num">${count.format(r.given)}</td><td class="num">${count.format(r.passed_over)}</td>
            <td class="num">${took(r.duration_ms)}</td><td class="num">${count.format(Math.round(r.cost))}</td></tr>`)}</tbody>
        </table>
      </div>
      ${into && into.length + out.length + moved.length > 0 ? this.changes() : nothing}
    </div>`;
  }

  changes() {
    const { in: into, out, moved } = this.result;
    const rank = (n) => (n === undefined ? '–' : count.format(n));
    const row = (what, old, now, one) => html`<tr><th scope="row" dir="auto">${one.item}</th><td>${what}</td><td class="num">${rank(old)}</td>
      <td class="num">${rank(now)}</td><td>${one.held ? t`held` : ''}</td></tr>`;
    return html`<div class="scroll" tabindex="0" role="region" aria-label=${t`What changes`}>
      <table class="rows changes">
        <thead><tr><th scope="col">${t`Item`}</th><th scope="col">${t`Change`}</th><th scope="col" class="num">${t`Before`}</th>
          <th scope="col" class="num">${t`After`}</th><th scope="col">${t`State`}</th></tr></thead>
        <tbody>${into.map((one) => row(t`comes in`, one.from, one.rank, one))}${out.map((one) => row(t`falls out`, one.rank, one.to, one))}${
          moved.map((one) => row(t`moves`, one.from, one.to, one))}</tbody>
      </table>
    </div>`;
  }
}
