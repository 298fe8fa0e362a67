/** The latest events of the wall's tasks, newest first. */

import { html } from '../../lib/lit-html/lit-html.js';
import { repeat } from '../../lib/lit-html/directives/repeat.js';
import { locale, t } from '../../lang.js';
import { took } from '../../parts.js';

const most = 12;
const together = 60_000; // ms within which repeated changes of a task's held items are one line
const past = 12 * 3_600_000;
const clock = new Intl.DateTimeFormat(locale, { timeStyle: 'medium' });

const ends = {
  finished: (run) => t`A run found ${run.candidates ?? 0} in ${took(run.duration_ms).replaceAll(' ', '\u00a0')}`,
  failed: () => t`A run failed`,
  cancelled: () => t`A run was stopped`,
  lost: () => t`A run was lost with its node`,
};

export class Ticker {
  #lines = []; // {key, at (ms), task, text, kind}

  /**
   * A run's event, or its row of the history: what is known already is not said again, and that a run began no longer once it
   * has ended. at: when, in ms; now: nothing is said of what is so long ago that a time of day no longer tells when.
   */
  run(task, { id, phase, state = phase, ...run }, at, now) {
    const ended = `run ${id} ended`;
    if (now - at > past || this.#lines.some((l) => l.key === ended)) return;
    const began = state === 'started' || state === 'running';
    const text = began ? t`A run began` : ends[state]?.(run);
    if (!began) this.#lines = this.#lines.filter((l) => l.key !== `run ${id} began`);
    if (text) this.#add({ key: began ? `run ${id} began` : ended, at, task, text, kind: state === 'failed' || state === 'lost' ? 'bad' : '' });
  }

  /** A task has changed. */
  task(before, after, at) {
    const { name, paused } = after;
    if (before.paused !== paused) this.#add({ key: `paused ${name} ${at}`, at, task: name, text: paused ? t`Paused` : t`Goes on`, kind: paused ? 'warn' : '' });
    const more = after.held - before.held;
    if (more) this.#held(after, more, at);
  }

  #held(task, more, at) {
    const last = this.#lines.find((l) => l.task === task.name);
    const goesOn = last && last.more * more > 0 && at - last.since < together;
    const since = goesOn ? last.since : at;
    const sum = goesOn ? last.more + more : more;
    if (goesOn) this.#lines.splice(this.#lines.indexOf(last), 1);
    const text = sum > 0 ? t`${sum} more held, ${task.held} in all` : t`${-sum} fewer held, ${task.held} in all`;
    this.#add({ key: `held ${task.name} ${since}`, at, since, more: sum, task: task.name, text });
  }

  #add(line) {
    if (this.#lines.some((l) => l.key === line.key)) return;
    this.#lines = [...this.#lines, line].sort((a, b) => b.at - a.at).slice(0, most);
  }

  /** title(task) gives a task's title; tasks that it does not know are left out. */
  draw(title) {
    const lines = this.#lines.filter((l) => title(l.task) !== undefined);
    return html`<ol>${repeat(lines, (l) => l.key, (l) => html`<li data-kind=${l.kind ?? ''}>
      <time class="soft" datetime=${new Date(l.at).toISOString()}>${clock.format(new Date(l.at))}</time>
      <span class="soft of" dir="auto">${title(l.task)}</span>
      <span class="what">${l.text}</span>
    </li>`)}</ol>`;
  }
}
