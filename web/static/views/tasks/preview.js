/** The preview of a task's query as it stands in the editor: its first rows, its plan, and what both took. Nothing is saved. */

import { html, nothing } from '../../lib/lit-html/lit-html.js';
import { locale, plural, t } from '../../lang.js';
import { took } from '../../parts.js';
import { decimals, elapsed, label, value } from '../../words.js';
import { microseconds } from './settings.js';

const count = new Intl.NumberFormat(locale);

/** How long a call may take beside the query itself: it waits for its slot, and the answer has to be read. */
const patience = 60_000;

export class Preview {
  /**
   * ask(query, limit, {signal, within}) calls the server; text() is what is in the editor; ready(): whether that can be asked;
   * timeout(): how long its query may take; display(): how an item is shown; given(text) is told that a query gave something,
   * refused(problem, text) that it didn't; style(name) loads the style sheet of the desk; changed() is called when there is something new to show.
   */
  constructor({ ask, text, ready, timeout, display, given, refused, changed, say, style, signal }) {
    Object.assign(this, { ask, text, ready, timeout, display, given, refused, changed, say, style });
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
      const [result, plans, { shown }] = await Promise.all([asked, import('./plan.js'), import('../desk/display.js'), this.style('look/desk.css')]);
      if (this.under?.aborted !== aborted) return;
      this.result = result;
      this.plans = plans;
      this.shown = shown;
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
    return html`<section class="card preview" aria-labelledby="preview-title" aria-busy=${running}>
      <div class="toolbar">
        <h2 id="preview-title" tabindex="-1">${t`Preview`}</h2>
        <span class="toolbar push">
          <label for="preview-rows" class="quiet">${t`Rows`}</label>
          <select id="preview-rows" @change=${(e) => { this.rows = Number(e.target.value); }}>
            ${[10, 25, 50, 100].map((n) => html`<option value=${n} ?selected=${n === this.rows}>${n}</option>`)}
          </select>
          ${running ? html`<button type="button" id="preview-stop" @click=${() => this.stop()}>${t`Give up`}</button>` : nothing}
          <button type="button" id="preview-run" aria-keyshortcuts="Control+Enter"
              @click=${() => this.run()}>${t`Preview`} <kbd>${t`Ctrl+Enter`}</kbd></button>
        </span>
      </div>
      ${running ? this.progress() : nothing}
      ${this.state === 'failed' ? this.failure() : nothing}
      ${this.state === 'given up' ? html`<p class="quiet">${t`Given up.`}</p>` : nothing}
      ${this.result ? this.found() : nothing}
      ${this.state === 'none'
        ? html`<p class="quiet">${t`Runs what is in the editor, without saving it, and hands nothing out.`}</p>` : nothing}
    </section>`;
  }

  progress() {
    return html`<div class="bar" aria-hidden="true"></div>
      <p><span role="status">${t`The query is running.`}</span> <span class="clock">${elapsed(Date.now() - this.under.since)}</span>
        <span class="quiet">${t`It may take ${this.under.timeout}; go on with something else.`}</span></p>`;
  }

  /** An error in the query is shown at the query. */
  failure() {
    const { errors, message } = this.problem;
    return html`<p class="error" role=${errors?.some((f) => f.field === 'query') ? nothing : 'alert'} dir="auto">${message}</p>`;
  }

  found() {
    const { given, blocked, passed_over: passed, details_left_out: bare, duration_ms: duration, cost } = this.result;
    const former = this.of !== this.text();
    return html`<div class="found ${former ? 'former' : ''}">
      ${former ? html`<p class="badge" data-kind="warn">${t`Of a former text of the query`}</p>` : nothing}
      <ul class="stats">
        ${stat(count.format(given), given === 1 ? t`row given` : t`rows given`)}
        ${stat(count.format(blocked), t`held or put off`)}
        ${stat(count.format(passed), t`skipped`, passed > 0)}
        ${stat(took(duration), t`taken`)}
        ${stat(this.plans.costText(cost), t`planned cost`)}
      </ul>
      ${passed > 0 ? html`<p class="quiet">${t`Skipped is a row whose item is null, empty, too long or there before, or that has both several slots and an exclusive group.`}</p>` : nothing}
      ${bare > 0 ? html`<p class="quiet left-out">${t`Of ${count.format(bare)} of these rows the details are left out: an item’s details have at most 64 KiB and 64 levels.`}</p>` : nothing}
      ${this.table()}
      ${this.sample()}
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
    const row = (r) => html`<tr><td class="number">${r.rank}</td><th scope="row" dir="auto">${r.item}</th>
      ${slots ? html`<td class="number">${r.slots}</td>` : nothing}
      ${groups ? html`<td dir="auto">${r.exclusive ?? '–'}</td>` : nothing}
      ${columns.map((c) => html`<td dir="auto" class=${c.kind}>${value(r.details[c.name], c.places)}</td>`)}</tr>`;
    return html`<div class="scroll" tabindex="0" role="region" aria-label=${t`First rows`}>
      <table class="rows">
        <thead><tr><th class="number" scope="col">#</th><th scope="col">${t`Item`}</th>
          ${slots ? html`<th class="number" scope="col">${t`Places`}</th>` : nothing}
          ${groups ? html`<th scope="col">${t`Group`}</th>` : nothing}
          ${columns.map((c) => html`<th scope="col" class=${c.kind} dir="auto" title=${c.name}>${label(c.name)}</th>`)}
        </tr></thead>
        <tbody>${rows.map(row)}</tbody>
      </table>
    </div>`;
  }

  /** The first row as people see it at the desk. */
  sample() {
    const [first] = this.result.rows;
    if (!first) return nothing;
    const { title, link, fields } = this.shown(this.display(), first.item, first.details);
    return html`<section class="work sample" aria-labelledby="sample-title">
      <h3 id="sample-title">${t`The first item, as people see it`}</h3>
      <p><b dir="auto">${title}</b> ${link ? html`<a href=${link} target="_blank" rel="noopener noreferrer">${t`Open`} <span aria-hidden="true">↗</span></a>` : nothing}</p>
      <dl>${fields.filter((f) => !f.folded).map((f) => html`<div class=${f.strong ? 'strong' : nothing}><dt dir="auto">${f.label}</dt><dd dir="auto">${
        f.colour ? html`<b class="badge" data-kind=${f.colour}>${f.text}</b>` : f.text}</dd></div>`)}</dl>
    </section>`;
  }

  plan() {
    const warnings = this.plans.warningsIn(this.tree);
    return html`<details class="plan-all" ?open=${warnings.length > 0}>
      <summary><h3>${t`Plan`}</h3> ${warnings.length
        ? html`<span class="badge" data-kind="warn">${plural(warnings.length, '{0} warning', '{0} warnings')}</span>`
        : html`<span class="quiet">${t`nothing to warn of`}</span>`}</summary>
      <p class="quiet">${t`How PostgreSQL means to go about the query, the last step first, with the rows that it expects and each step’s own share of the cost.`}</p>
      <div class="scroll" tabindex="0" role="region" aria-label=${t`Plan`}>${this.plans.planTree(this.tree)}</div>
      <details><summary>${t`As JSON`}</summary>
        <p class="quiet">${t`With what getwork puts around the query to count rows, and to take out what is held or put off.`}</p>
        <pre class="cause" dir="ltr" tabindex="0" role="region"
          aria-label=${t`Plan as JSON`}>${JSON.stringify(this.result.plan, null, 2)}</pre>
      </details>
    </details>`;
  }
}

/** The columns of details: {name, places, kind}, places: how many decimals their numbers have; kind 'number': all are. */
function columnsOf(rows) {
  const names = [...new Set(rows.flatMap((r) => Object.keys(r.details)))];
  return names.map((name) => {
    const values = rows.map((r) => r.details[name]);
    return { name, places: decimals(values), kind: values.every((v) => v === null || isNumber(v)) ? 'number' : '' };
  });
}

const isNumber = (v) => typeof v === 'number' || v instanceof Number;

function stat(number, what, warn = false) {
  return html`<li class="stat"><b class=${warn ? 'warned' : ''}>${number}</b><span>${what}</span></li>`;
}
