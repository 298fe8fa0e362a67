/** A task's versions, the differences between any two, and the way back to one. */

import { html, nothing } from '../../lib/lit-html/lit-html.js';
import { live } from '../../lib/lit-html/directives/live.js';
import { repeat } from '../../lib/lit-html/directives/repeat.js';
import { plural, t } from '../../lang.js';
import { ask } from '../../dialog.js';
import { face, when } from '../../parts.js';
import { around, counted, diff, linesOf } from './diff.js';
import { Pages } from './pages.js';
import { differing, isText, valueText } from './settings.js';

/** A version's changes since the one before it, in words. was is null for the first. */
function changeWords(was, is) {
  if (!was) return [t`created`];
  const words = differing(was, is).map((f) => {
    const [before, after] = [was[f.name], is[f.name]];
    if (f.kind === 'lines') return f.label;
    if (f.kind !== 'sql') return `${f.label}: ${valueText(f, before)} → ${valueText(f, after)}`;
    const { added, removed } = counted(diff(linesOf(before), linesOf(after)));
    return `${f.label}: +${added} −${removed} ${added + removed === 1 ? t`line` : t`lines`}`;
  });
  if (was.paused !== is.paused) words.unshift(is.paused ? t`paused` : t`resumed`);
  return words.length ? words : [t`nothing`];
}

/** A table of the settings in which two versions differ, and the changed lines of texts. names: the two headings. */
function comparison(was, is, names) {
  const found = differing(was, is);
  const short = found.filter((f) => !isText(f));
  const row = (f) => html`<tr><th scope="row">${f.label}</th>
    <td dir="auto"><del>${valueText(f, was[f.name])}</del></td><td dir="auto"><ins>${valueText(f, is[f.name])}</ins></td></tr>`;
  const alike = was.paused === is.paused ? t`They do not differ.`
    : is.paused ? t`They do not differ but in this: one paused the task.` : t`They do not differ but in this: one resumed the task.`;
  return html`${short.length ? html`<div class="scroll" tabindex="0" role="region" aria-label=${t`Settings that differ`}><table>
      <thead><tr><th scope="col">${t`Setting`}</th>${names.map((n) => html`<th scope="col" dir="auto">${n}</th>`)}</tr></thead>
      <tbody>${short.map(row)}</tbody>
    </table></div>` : nothing}
    ${found.filter(isText).map((f) => html`<h3>${f.label}</h3>${lineDiff(was[f.name] ?? '', is[f.name] ?? '', f.label)}`)}
    ${found.length ? nothing : html`<p class="soft">${alike}</p>`}`;
}

/** The differences between two texts, by lines. */
export function lineDiff(was, is, name) {
  const line = (l) => (l.kind === 'gap'
    ? html`<tr class="gap"><td colspan="4">${plural(l.count, '{0} line alike', '{0} lines alike')}</td></tr>`
    : html`<tr class=${l.kind}><td class="num">${l.was ?? ''}</td><td class="num">${l.is ?? ''}</td>
        <td>${signs[l.kind]}</td><td><code>${l.text}</code></td></tr>`);
  return html`<div class="scroll" tabindex="0" role="region" aria-label=${t`${name}: lines that differ`}>
    <table class="diff" dir="ltr"><tbody>${around(diff(linesOf(was), linesOf(is))).map(line)}</tbody></table>
  </div>`;
}

const sign = (shown, said) => html`<span aria-hidden="true">${shown}</span><span class="sr">${said}</span>`;
const signs = { del: sign('−', t`removed`), ins: sign('+', t`added`), same: nothing };

export class Versions extends Pages {
  // While there are older versions, the last of rows only serves to show the changes of the one after it.

  /** As of Pages; restore(version) goes back to one. */
  constructor({ read, restore, changed }) {
    super({ what: 'versions', key: 'version', first: 21, read, changed });
    this.restore = restore;
  }

  get current() { return this.rows[0].version; }

  /** The versions whose changes are known. */
  get shown() { return this.next ? this.rows.slice(0, -1) : this.rows; }

  compare(was, is) {
    this.pair = [was, is];
    this.changed();
  }

  lookAt(was, is) {
    this.compare(was, is);
    document.getElementById('compared-title').focus();
  }

  async goBack({ version, paused }, dirty) {
    const text = [
      t`Its settings of then are saved as its newest version.`,
      paused && t`Whether it is paused stays as it is.`,
      dirty && t`What you typed and did not save stays typed.`,
    ].filter(Boolean).join(' ');
    if (await ask({ title: t`Go back to version ${version}?`, text, yes: t`Go back` })) await this.restore(version);
  }

  template(dirty) {
    return html`<div class="split">
      <div class="stack">${this.error ? html`<p class="error" role="alert">${this.error}</p>` : nothing}
        ${this.rows?.length > 1 ? this.chosen() : nothing}
        ${this.rows?.length === 1 ? html`<p class="empty">${t`It has not been changed since it was created.`}</p>` : nothing}</div>
      <aside class="stack" aria-labelledby="versions-title"><h2 id="versions-title" tabindex="-1" class="minor soft">${t`All versions`}</h2>
        ${this.rows ? this.list(dirty) : nothing}
        ${this.next ? html`<p><button type="button" @click=${() => this.more()}>${t`Older versions`}</button></p>` : nothing}</aside>
    </div>`;
  }

  list(dirty) {
    return html`<ol class="versions stack">${repeat(this.shown, (v) => v.version, (v) => {
      const before = this.rows[this.rows.indexOf(v) + 1];
      const now = v.version === this.current;
      return html`<li class="paper" data-version=${v.version}>
        <div class="bar"><h3>${t`Version ${v.version}`}</h3>${now ? html`<span class="tag" data-time="ok">${t`now`}</span>` : nothing}
          <span class="soft small push">${when(v.created_at)}</span></div>
        <p class="who small">${face(v.created_by)}<bdi>${v.created_by}</bdi></p>
        <ul class="changes">${changeWords(before ?? null, v).map((w) => html`<li dir="auto">${w}</li>`)}</ul>
        <p class="bar">${before ? html`<button type="button" class="compare" aria-label=${t`What version ${v.version} changed`}
                @click=${() => this.lookAt(before.version, v.version)}>${t`What changed`}</button>` : nothing}
            ${now ? nothing : html`<button type="button" class="restore" aria-label=${t`Go back to version ${v.version}`}
                @click=${() => this.goBack(v, dirty)}>${t`Go back to it`}</button>`}</p>
      </li>`;
    })}</ol>`;
  }

  /** Any two, side by side. */
  chosen() {
    const of = (n) => this.rows.find((v) => v.version === n);
    const [was, is] = this.pair?.every(of) ? this.pair : [this.rows[1].version, this.current];
    const choice = (name, at, compare) => html`<label>${name} <select
        @change=${(e) => compare(Number(e.target.value))} .value=${live(String(at))}>
      ${this.rows.map((v) => html`<option value=${v.version}
        ?selected=${v.version === at}>${t`${v.version}, by ${v.created_by}`}</option>`)}</select></label>`;
    return html`<section class="paper stack compared" aria-labelledby="compared-title">
      <div class="head"><h2 id="compared-title" tabindex="-1">${t`What changed`}</h2>
        <span class="push bar">${choice(t`from`, was, (n) => this.compare(n, is))}
          ${choice(t`to`, is, (n) => this.compare(was, n))}</span></div>
      ${comparison(of(was), of(is), [t`version ${was}`, t`version ${is}`])}
    </section>`;
  }
}
