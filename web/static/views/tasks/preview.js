/** The preview of a task's query as it stands in the editor: its first rows, its plan, and what both took. Nothing is saved. */

import { html, nothing } from '../../lib/lit-html/lit-html.js';
import { locale, plural, t } from '../../lang.js';
import { icon, took } from '../../parts.js';
import { decimals, elapsed, label, value } from '../../words.js';
import { microseconds } from './settings.js';

const count = new Intl.NumberFormat(locale);

/** How long a call may take beside the query itself: it waits for its slot, and the answer has to be read. */
const patience = 60_000;

export class Preview {
  /**
   * ask(query, limit, {signal, within}) calls the server; text() is what is in the editor; ready(): whether that can be asked;
   * timeout(): how long its query may take; given(text) is told that a query gave something, refused(problem, text) that it didn't;
   * changed() is called when there is something new to show.
   */
  constructor({ ask, text, ready, timeout, given, refused, changed, say, signal }) {
    Object.assign(this, { ask, text, ready, timeout, given, refused, changed, say });
    this.rows = 10;
    this.state = 'none'; // running, done, failed, given up
    signal.addEventListener('abort', () => this.stop());
  }

  async run() {
    if (!this.ready()) return;
    this.stop();
    const text = this.text();
    const timeout = this.timeout();
    const aborted = new AbortController();
    this.under = { aborted, since: Date.now(), timeout };
    this.state = 'running';
    this.changed();
    try {
      const within = patience + microseconds(timeout) / 1000;
      const asked = this.ask(text, this.rows, { signal: aborted.signal, within });
      const [result, plans, { sample }] = await Promise.all([asked, import('./plan.js'), import('./sample.js')]);
      if (this.under?.aborted !== aborted) return;
      this.result = result;
      this.plans = plans;
      this.sample = sample;
      this.tree = plans.planOf(result.plan);
      this.of = text;
      this.end('done');
      this.given(text);
      this.say(plural(result.given, 'Preview: {0} row in {1}.', 'Preview: {0} rows in {1}.', took(result.duration_ms)));
    } catch (e) {
      if (this.under?.aborted !== aborted) return;
      this.problem = e;
      this.end('failed');
      this.refused(e, text);
    }
  }

  /** Aborts the preview under way. The server ends the query, too. */
  stop() {
    if (!this.under) return;
    this.under.aborted.abort();
    this.end('given up');
  }

  end(state) {
    if (document.activeElement?.id === 'preview-stop') document.getElementById('preview-run').focus();
    this.state = state;
    this.under = null;
    this.changed();
  }

  template() {
    const running = this.state === 'running';
    return html`<section class="paper stack preview" aria-labelledby="preview-title" aria-busy=${running}>
      <div class="head">
        <h2 id="preview-title" tabindex="-1">${t`Preview`}</h2>
        ${this.result && !running && this.state === 'done' ? html`<span class="count">${this.summary()}</span>` : nothing}
        <span class="push bar">
          <label for="preview-rows" class="soft small">${t`Rows`}</label>
          <select id="preview-rows" @change=${(e) => { this.rows = Number(e.target.value); }}>
            ${[10, 25, 50, 100].map((n) => html`<option value=${n} ?selected=${n === this.rows}>${n}</option>`)}
          </select>
          ${running ? html`<button type="button" id="preview-stop" @click=${() => this.stop()}>${t`Give up`}</button>` : nothing}
          <button type="button" id="preview-run" aria-keyshortcuts="Control+Enter"
              @click=${() => this.run()}>${icon('play')}${this.result ? t`Run again` : t`Preview`} <kbd>${t`Ctrl+Enter`}</kbd></button>
        </span>
      </div>
      ${running ? this.progress() : nothing}
      ${this.state === 'failed' ? this.failure() : nothing}
      ${this.state === 'given up' ? html`<p class="soft">${t`Given up.`}</p>` : nothing}
      ${this.result ? this.found() : nothing}
      ${this.state === 'none'
        ? html`<p class="soft">${t`Runs what is in the editor, without saving it, and hands nothing out.`}</p>` : nothing}
    </section>`;
  }

  summary() {
    const { rows, given, duration_ms: duration } = this.result;
    return t`${count.format(rows.length)} of ${count.format(given)}, in ${took(duration)}, nothing handed out`;
  }

  progress() {
    return html`<progress data-time="now" aria-hidden="true"></progress>
      <p><span role="status">${t`The query is running.`}</span> <span class="clock">${elapsed(Date.now() - this.under.since)}</span>
        <span class="soft">${t`It may take ${this.under.timeout}; go on with something else.`}</span></p>`;
  }

  /** An error in the query is shown at the query. */
  failure() {
    const { errors, message } = this.problem;
    return html`<p class="error" role=${errors?.some((f) => f.field === 'query') ? nothing : 'alert'} dir="auto">${message}</p>`;
  }

  found() {
    const { given, blocked, passed_over: passed, details_left_out: bare, duration_ms: duration, cost } = this.result;
    const former = this.of !== this.text();
    return html`<div class="stack found ${former ? 'former' : ''}">
      ${former ? html`<p><span class="tag" data-time="half">${t`Of a former text of the query`}</span></p>` : nothing}
      <ul class="stats small">
        ${stat(count.format(given), given === 1 ? t`row given` : t`rows given`)}
        ${stat(count.format(blocked), t`held or put off`)}
        ${stat(count.format(passed), t`skipped`, passed > 0)}
        ${stat(took(duration), t`taken`)}
        ${stat(this.plans.costText(cost), t`planned cost`)}
      </ul>
      ${passed > 0 ? html`<p class="soft small">${t`Skipped is a row whose item is null, empty, too long or there before, or that has both several slots and an exclusive group.`}</p>` : nothing}
      ${bare > 0 ? html`<p class="soft small left-out">${t`Of ${count.format(bare)} of these rows the details are left out: an item’s details have at most 64 KiB and 64 levels.`}</p>` : nothing}
      ${this.table()}
      ${this.plan()}
    </div>`;
  }

  table() {
    const { rows, given } = this.result;
    if (rows.length === 0) {
      return html`<p class="empty">${given ? t`All that it gives is held or put off.` : t`It gives no rows now.`}</p>`;
    }
    const columns = columnsOf(rows);
    const slots = rows.some((r) => r.slots !== 1);
    const groups = rows.some((r) => r.exclusive !== null);
    const row = (r) => html`<tr><td class="num">${r.rank}</td><th scope="row" dir="auto">${r.item}</th>
      ${slots ? html`<td class="num">${r.slots}</td>` : nothing}
      ${groups ? html`<td dir="auto">${r.exclusive ?? '–'}</td>` : nothing}
      ${columns.map((c) => html`<td dir="auto" class=${c.kind}>${value(r.details[c.name], c.places)}</td>`)}</tr>`;
    return html`<div class="scroll" tabindex="0" role="region" aria-label=${t`First rows`}>
      <table class="rows">
        <thead><tr><th class="num" scope="col">#</th><th scope="col">${t`Item`}</th>
          ${slots ? html`<th class="num" scope="col">${t`Places`}</th>` : nothing}
          ${groups ? html`<th scope="col">${t`Group`}</th>` : nothing}
          ${columns.map((c) => html`<th scope="col" class=${c.kind} dir="auto" title=${c.name}>${label(c.name)}</th>`)}
        </tr></thead>
        <tbody>${rows.map(row)}</tbody>
      </table>
    </div>`;
  }

  plan() {
    const warnings = this.plans.warningsIn(this.tree);
    return html`<details class="plan-all" ?open=${warnings.length > 0}>
      <summary><h3>${t`Plan`}</h3> ${warnings.length
        ? html`<span class="tag" data-time="half">${plural(warnings.length, '{0} warning', '{0} warnings')}</span>`
        : html`<span class="soft small">${t`nothing to warn of`}</span>`}</summary>
      <p class="soft small">${t`How PostgreSQL means to go about the query, the last step first, with the rows that it expects and each step’s own share of the cost.`}</p>
      <div class="scroll" tabindex="0" role="region" aria-label=${t`Plan`}>${this.plans.planTree(this.tree)}</div>
      <details><summary>${t`As JSON`}</summary>
        <p class="soft small">${t`With what getwork puts around the query to count rows, and to take out what is held or put off.`}</p>
        <pre class="cause" dir="ltr" tabindex="0" role="region"
          aria-label=${t`Plan as JSON`}>${JSON.stringify(this.result.plan, null, 2)}</pre>
      </details>
    </details>`;
  }
}

/** The columns of details: {name, places, kind}, places: how many decimals their numbers have; kind 'num': all are. */
function columnsOf(rows) {
  const names = [...new Set(rows.flatMap((r) => Object.keys(r.details)))];
  return names.map((name) => {
    const values = rows.map((r) => r.details[name]);
    return { name, places: decimals(values), kind: values.every((v) => v === null || isNumber(v)) ? 'num' : '' };
  });
}

const isNumber = (v) => typeof v === 'number' || v instanceof Number;

function stat(number, what, warn = false) {
  return html`<li class="stat" data-time=${warn ? 'fifth' : nothing}><b>${number}</b><span>${what}</span></li>`;
}
