/** The floor's tasks, a row each: who waits, what is held, and the run under way. */

import { html, nothing } from '../../lib/lit-html/lit-html.js';
import { repeat } from '../../lib/lit-html/directives/repeat.js';
import { locale, plural, t } from '../../lang.js';
import { span, took, when } from '../../parts.js';
import { elapsed } from '../../words.js';

/** A row for each task. floor.chosen are those that the rest of the page is about; with none chosen it is about all. */
export function taskRows(floor) {
  return html`<ul class="floor-tasks card">${repeat(floor.tasks.values(), (task) => task.name, (task) => row(floor, task))}</ul>`;
}

function row(floor, task) {
  const title = task.title || task.name;
  const only = floor.chosen.size === 1 && floor.chosen.has(task.name);
  const show = (e) => {
    if (e.metaKey || e.ctrlKey || e.shiftKey) return;
    e.preventDefault();
    floor.choose([task.name]);
  };
  return html`<li data-task=${task.name}>
    <label class="tick"><input type="checkbox" aria-label=${t`Show ${title}`} .checked=${floor.chosen.has(task.name)}
      @change=${() => floor.toggle(task.name)}></label>
    <h3><a href=${`/floor?task=${encodeURIComponent(task.name)}`} aria-current=${only ? 'true' : nothing} dir="auto" @click=${show}>${title}</a>
      ${task.paused ? html`<span class="badge" data-kind="warn">${t`paused`}</span>` : nothing}
      ${task.failures ? html`<span class="badge" data-kind="bad" title=${task.last_error ?? nothing}>${t`broken`}</span>` : nothing}
      ${task.late ? html`<span class="badge" data-kind="warn">${t`${number(task.late)} late`}</span>` : nothing}</h3>
    <dl>
      ${count('waiting', t`waiting`, task.waiting)}${count('held', t`held`, task.held)}${task.query === null
        ? count('in the inbox', t`in the inbox`, task.shelf) : count('on the shelf', t`on the shelf`, task.shelf)}
    </dl>
    <div class="run">${run(task, floor.ends.get(task.name), floor.now())} ${backlog(task, floor.now())}</div>
    ${floor.manages ? html`<p class="acts">
      <a href=${`/tasks/${encodeURIComponent(task.name)}`} aria-label=${t`Settings of ${title}`}>${t`Settings`}</a>
      <button type="button" class="plain pause" aria-disabled=${String(floor.pausing.has(task.name))} aria-label=${task.paused ? t`Resume ${title}` : t`Pause ${title}`}
        @click=${() => floor.pause(task)}>${task.paused ? t`Resume` : t`Pause`}</button>
      <button type="button" class="plain let-go" aria-disabled=${String(!task.held)} aria-label=${t`Release what is held of ${title} …`}
        @click=${() => task.held && floor.release({ task: task.name })}>${t`Release …`}</button></p>` : nothing}
  </li>`;
}

const about = (ms) => (ms < 1000 ? took(ms) : span(ms));

const number = (n) => n.toLocaleString(locale);

const count = (what, word, n) => html`<div data-count=${what} class=${n ? nothing : 'none'}><dt>${word}</dt><dd>${number(n)}</dd></div>`;

/** The run under way, or what is known of others. end: the `run` event of the last one that ended while somebody looked. */
function run(task, end, now) {
  if (task.query === null) return html`<span class="quiet">${t`Items are pushed to it; nothing has to run.`}</span>`;
  const usual = task.usual_seconds * 1000; // 0: not known
  if (task.running_since) {
    const since = Math.max(0, now - Date.parse(task.running_since));
    const running = t`Running for ${html`<b class="clock">${elapsed(since)}</b>`}`;
    if (!usual) return html`<span>${running}</span>`;
    return html`<span>${running}, ${since > usual
      ? html`<span class="badge" data-kind="warn">${t`longer than usual`}</span> <span class="quiet">(${about(usual)})</span>`
      : html`<span class="quiet">${t`usually ${about(usual)}`}</span>`}</span>${gauge(since, usual)}`;
  }
  if (!end && task.failures) return html`<span class="error" dir="auto">${task.last_error ? t`The last run failed: ${task.last_error}` : t`The last run failed.`}</span>`;
  if (!end && !usual) return html`<span class="quiet">${t`No runs yet.`}</span>`;
  return html`<span class="quiet">${end ? ended(end) : nothing}${usual ? t`A run usually takes ${about(usual)}.` : nothing}</span>`;
}

/** What the last run found. */
function backlog({ query, backlog: found }, now) {
  if (query === null || !found) return nothing;
  const oldest = found.oldest && now - Date.parse(found.oldest);
  return html`<span class="quiet backlog">${oldest
    ? t`To do at ${when(found.as_of)}: ${number(found.free)} of ${number(found.found)}, the oldest for ${span(oldest)}.`
    : t`To do at ${when(found.as_of)}: ${number(found.free)} of ${number(found.found)}.`}</span>`;
}

function ended({ phase, candidates, duration_ms: ms, at }) {
  const how = {
    finished: t`found ${candidates ?? 0} in ${took(ms)}`,
    failed: t`failed after ${took(ms)}`,
    cancelled: t`was cancelled`,
    lost: t`was lost with its node`,
  }[phase];
  return html`${phase === 'failed' || phase === 'lost' ? html`<span class="badge" data-kind="bad">${t`failed`}</span> ` : nothing}${t`The last run, at ${when(at)}, ${how}.`} `;
}

/** How long it runs, against the usual, which is the mark: the scale grows with it, so that it is never full. */
function gauge(since, usual) {
  const scale = Math.max(usual * 2, since * 1.25);
  return html`<svg class="gauge" viewBox="0 0 100 6" preserveAspectRatio="none" aria-hidden="true">
    <rect class="track" width="100" height="6"></rect>
    <rect class=${since > usual ? 'fill over' : 'fill'} width=${(100 * since) / scale} height="6"></rect>
    <rect class="mark" x=${(100 * usual) / scale} width=".6" height="6"></rect>
  </svg>`;
}

/** The task's activity in few words. */
export function summary(tasks, now) {
  const sum = (of) => tasks.reduce((n, task) => n + task[of], 0);
  const running = tasks.filter((task) => task.running_since);
  const late = running.filter((task) => task.usual_seconds && now - Date.parse(task.running_since) > task.usual_seconds * 1000).length;
  const all = plural(running.length, '{1} waiting, {2} held, {0} run under way', '{1} waiting, {2} held, {0} runs under way', sum('waiting'), sum('held'));
  return late ? t`${all}, ${late} for longer than usual` : all;
}
