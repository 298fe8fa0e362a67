/** How the query in the editor would rank the task's items, beside the saved one: what comes in, falls out and moves. Nothing is saved. */

import { html, nothing } from '../../lib/lit-html/lit-html.js';
import { locale, plural, t } from '../../lang.js';
import { took } from '../../parts.js';
import { elapsed } from '../../words.js';
import { microseconds } from './settings.js';

const count = new Intl.NumberFormat(locale);

/** So many changes of a kind are shown at once: what changes is seen in one screen. */
const few = 8;

/** How long a call may take beside the queries: see Preview. */
const patience = 60_000;

export class Compare {
  /**
   * ask(query, limit, {signal, within}) calls the server; text() is what is in the editor; timeout(): how long a query may take;
   * refused(problem, text) is told that it gave nothing; changed() is called when there is something new to show.
   */
  constructor({ ask, text, timeout, refused, changed, signal }) {
    Object.assign(this, { ask, text, timeout, refused, changed });
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
      this.show();
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

  /** Brings all of the result into sight, unless somebody has gone on with something else. */
  show() {
    if (!['', 'compare-run', 'compare-now'].includes(document.activeElement.id)) return;
    requestAnimationFrame(() => document.getElementById('compare')?.scrollIntoView({ block: 'nearest' }));
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
      ${running ? html`<progress data-time="now" aria-hidden="true"></progress>` : nothing}
      <p><span role="status">${this.status()}</span>
        ${running ? html`<span class="clock">${elapsed(Date.now() - this.under.since)}</span>` : nothing}</p>
      ${this.state === 'failed' ? html`<p class="error" role="alert" dir="auto">${this.problem.message}</p>` : nothing}
      ${this.result ? this.found() : nothing}
    </section>`;
  }

  /** A line that screen readers follow. */
  status() {
    switch (this.state) {
      case 'none': return t`Runs both queries on the same data, and shows what the one in the editor ranks differently.`;
      case 'running': return t`Both queries are running.`;
      case 'done': return this.summary();
      case 'given up': return t`Given up.`;
    }
    return '';
  }

  found() {
    const { old, new: now, in: into, out, moved, overlap, version } = this.result;
    const former = this.of !== this.text();
    return html`<div class="stack found ${former ? 'former' : ''}">
      ${former ? html`<p><span class="tag" data-time="half">${t`Of a former text of the query`}</span></p>` : nothing}
      ${old.error ? html`<p class="error" dir="auto">${old.error}</p>` : nothing}
      ${overlap ? html`<p>${overlap.filter((o, i) => o.of > 0 && (i === 0 || o.of > overlap[i - 1].best)).map((o) =>
        plural(o.common, 'Of the best {1}, {0} is the same.', 'Of the best {1}, {0} are the same.', count.format(o.of))).join(' ')}</p>` : nothing}
      <div class="scroll" tabindex="0" role="region" aria-label=${t`What both cost`}>
        <table class="dense">
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
    return html`<div class="shifts">
      ${kind('shifts-in', t`Come in`, into, (one) => [one.from, one.rank])}
      ${kind('shifts-out', t`Fall out`, out, (one) => [one.rank, one.to])}
      ${kind('shifts-moved', t`Move`, moved, (one) => [one.from, one.to])}
    </div>`;
  }
}

/** One kind of change, the best first. ranks(shift): its former rank and the new one. */
function kind(id, title, shifts, ranks) {
  const rank = (n) => html`<td class="num">${n === undefined ? '–' : count.format(n)}</td>`;
  const table = (some) => html`<table class="dense" aria-labelledby=${id}>
    <thead><tr><th scope="col">${t`Item`}</th><th scope="col" class="num">${t`Before`}</th><th scope="col" class="num">${t`After`}</th></tr></thead>
    <tbody>${some.map((one) => html`<tr><th scope="row"><span class="shifted"><span dir="auto" title=${one.item}>${one.item}</span>${
      one.held ? html` <span class="tag">${t`held`}</span>` : nothing}</span></th>${ranks(one).map(rank)}</tr>`)}</tbody>
  </table>`;
  return html`<section class="stack" aria-labelledby=${id}>
    <h3 id=${id}>${title} <span class="count">${count.format(shifts.length)}</span></h3>
    ${shifts.length ? table(shifts.slice(0, few)) : nothing}
    ${shifts.length > few ? html`<details><summary>${t`${count.format(shifts.length - few)} more`}</summary>${table(shifts.slice(few))}</details>` : nothing}
  </section>`;
}
