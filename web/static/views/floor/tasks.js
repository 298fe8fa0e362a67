/** The floor's tasks, a row each, trouble first: how much is left, who waits, what is held, the pace, and the run under way. */

import { html, nothing } from '../../lib/lit-html/lit-html.js';
import { repeat } from '../../lib/lit-html/directives/repeat.js';
import { locale, plural, t } from '../../lang.js';
import { fixed, icon, span, took, when } from '../../parts.js';
import { elapsed, nearly } from '../../words.js';
import { spark } from './chart.js';

const soon = 14 * 86_400_000; // ms: what isn't through by then falls behind
const number = (n) => n.toLocaleString(locale);
const about = (ms) => (ms < 1000 ? took(ms) : span(ms));

/** How many items are left to do, as far as that is known; otherwise null. */
export const leftOf = (task) => task.backlog?.free ?? (task.query === null ? task.shelf : null);

/** For how long the oldest of them has been there, in ms, or null. */
const oldestOf = (task, now) => (task.backlog?.oldest ? now - Date.parse(task.backlog.oldest) : null);

const isSlow = (task, now) => Boolean(task.running_since && task.usual_seconds && now - Date.parse(task.running_since) > task.usual_seconds * 1000);

/** Whether a task isn't through soon at its pace. */
export const fallsBehind = (task, now) => Boolean(!task.paused && !task.failures && leftOf(task) && task.pace
  && (!task.through_at || Date.parse(task.through_at) - now > soon));

const idle = (task) => !leftOf(task) && leftOf(task) !== null && !task.waiting && !task.held && !task.running_since && !task.failures && !task.paused && !task.late;

/** How urgent a task's trouble is: 0 is the worst. */
export function trouble(task, now) {
  if (task.failures) return 0;
  if (task.late) return 1;
  if (isSlow(task, now)) return 2;
  if (fallsBehind(task, now)) return 3;
  if (task.paused) return 5;
  return 4;
}

/** Trouble first, and otherwise in the order of the list. */
export const troubledFirst = (tasks, now) => [...tasks].sort((a, b) => trouble(a, now) - trouble(b, now));

/** The table. floor.chosen are the tasks that the rest of the page is about; with none chosen it is about all. */
export function taskTable(floor) {
  const now = floor.now();
  const all = floor.ordered();
  const [busy, rest] = [all.filter((task) => !idle(task) || floor.chosen.has(task.name)), all.filter((task) => idle(task) && !floor.chosen.has(task.name))];
  const table = (tasks, label) => html`<div class="scroll" tabindex="0" role="region" aria-label=${label}><table class="floor-tasks">
    <thead><tr><th scope="col">${t`Task`}</th><th scope="col" class="num">${t`Left`}</th><th scope="col" class="num wide">${t`Oldest`}</th><th scope="col" class="num wide">${t`Waiting`}</th>
      <th scope="col" class="num wide">${t`Held`}</th><th scope="col" class="num wide">${t`Today`}</th><th scope="col" class="num wide">${t`An hour`}</th>
      <th scope="col">${t`Through by`}</th><th scope="col" class="wide">${t`Since ${floor.day.begins}`}</th>${floor.manages ? html`<th scope="col"><span class="sr">${t`Actions`}</span></th>` : nothing}</tr></thead>
    <tbody>${repeat(tasks, (task) => task.name, (task) => row(floor, task, now))}</tbody>
  </table></div>`;
  const running = all.filter((task) => task.running_since);
  return html`<section class="paper" data-part="tasks" aria-labelledby="tasks-title">
    <div class="head"><h2 id="tasks-title" tabindex="-1">${t`Tasks`}</h2><span class="count">${running.length
        ? t`${all.length}, trouble first; ${underWay(running, now)}` : t`${all.length}, trouble first`}</span>
      <button type="button" class="push show-all" ?hidden=${!floor.chosen.size} @click=${() => floor.all()}>${t`Show all tasks`}</button></div>
    ${busy.length ? table(busy, t`Tasks and their figures`) : nothing}
    ${rest.length ? html`<details class="folded" ?open=${!busy.length}><summary>${plural(rest.length, '{0} task with nothing to do', '{0} tasks with nothing to do')}</summary>
      ${table(rest, t`Tasks with nothing to do`)}</details>` : nothing}
  </section>`;
}

/** Runs under way, in few words. */
function underWay(running, now) {
  const late = running.filter((task) => isSlow(task, now)).length;
  const all = plural(running.length, '{0} run under way', '{0} runs under way');
  return late ? t`${all}, ${late} for longer than usual` : all;
}

function row(floor, task, now) {
  const title = task.title || task.name;
  const only = floor.chosen.size === 1 && floor.chosen.has(task.name);
  const show = (e) => {
    if (e.metaKey || e.ctrlKey || e.shiftKey) return;
    e.preventDefault();
    floor.choose([task.name]);
  };
  const left = leftOf(task);
  const oldest = oldestOf(task, now);
  const cell = (name, value, text = value && number(value)) => html`<td class=${`num${name === 'left' ? '' : ' wide'}${value ? '' : ' none'}`} data-count=${name}>${value ? text : '–'}</td>`;
  return html`<tr data-task=${task.name}>
    <th scope="row"><a href=${`/floor?task=${encodeURIComponent(task.name)}`} aria-current=${only ? 'true' : nothing} dir="auto" @click=${show}>${title}</a> ${tags(floor, task, now)}</th>
    ${cell('left', left)}${cell('oldest', oldest, oldest && whole(oldest))}${cell('waiting', task.waiting)}${cell('held', task.held)}
    ${cell('today', floor.day.doneBy(task))}${cell('pace', task.pace, task.pace && fixed(task.pace, task.pace < 10 && task.pace % 1 ? 1 : 0))}
    ${through(task, left)}
    <td class="wide">${spark(floor.day.hours(task.name), t`Done by the hour: ${floor.day.hours(task.name).join(', ')}`)}</td>
    ${floor.manages ? html`<td class="num">${menu(floor, task, title)}</td>` : nothing}
  </tr>`;
}

/** A span in its largest unit: 6 d, 26 h, 50 min. */
const whole = (ms) => (ms < 6_000_000 ? span(ms) : ms < 172_800_000 ? t`${Math.floor(ms / 3_600_000)} h` : t`${Math.floor(ms / 86_400_000)} d`);

function through(task, left) {
  const none = (text) => html`<td class="none" data-count="through">${text}</td>`;
  if (!left) return none('–');
  if (task.failures) return none(t`not while it fails`);
  if (task.paused) return none(t`paused`);
  return task.through_at ? html`<td data-count="through">${nearly(task.through_at)}</td>` : none('–');
}

/** What is wrong, and the run under way: a word or a span of time each. */
function tags(floor, task, now) {
  const { failures, late, paused, items_nobody: nobody } = task;
  const failing = floor.alerts?.of(task.name, 'failing');
  const unserved = floor.alerts?.of(task.name, 'unserved');
  return html`${failures ? html`<span class="tag loud" data-time="fifth" title=${task.last_error ?? nothing}>${icon('circle-alert')}${failing
      ? t`failing for ${whole(now - Date.parse(failing.since))}` : t`failing`}</span> ` : nothing}
    ${late ? html`<span class="tag" data-time=${late * 5 >= late + (leftOf(task) ?? 0) ? 'fifth' : 'half'}>${t`${number(late)} late`}</span> ` : nothing}
    ${nobody ? html`<span class="tag" data-time="half" title=${t`They need groups or skills that nobody here has.`}>${t`${number(nobody)} for nobody`}</span> ` : nothing}
    ${unserved ? html`<span class="tag" data-time="half">${t`nobody served for ${whole(now - Date.parse(unserved.since))}`}</span> ` : nothing}
    ${paused ? html`<span class="tag" data-time="half">${icon('pause')}${t`paused`}</span> ` : nothing}
    ${fallsBehind(task, now) ? html`<span class="tag" data-time="half">${t`falls behind`}</span> ` : nothing}
    ${running(task, now)}`;
}

/** How long the run under way has lasted, of the usual. */
function running(task, now) {
  if (!task.running_since) return nothing;
  const since = Math.max(0, now - Date.parse(task.running_since));
  const usual = task.usual_seconds * 1000; // 0: not known
  const says = t`The query runs.`;
  if (!usual) return html`<span class="tag run" data-time="now" title=${says}>${t`runs for ${elapsed(since)}`}</span>`;
  if (since > usual) return html`<span class="tag run" data-time="half" title=${says}>${t`runs for ${elapsed(since)}, longer than usual (${about(usual)})`}</span>`;
  return html`<span class="tag run" data-time="now" title=${says}>${t`runs for ${elapsed(since)} of about ${about(usual)}`}</span>`;
}

/** Rare acts. The menu closes as soon as something else opens. */
function menu(floor, task, title) {
  const id = `menu-${task.name}`;
  const place = (e) => {
    if (e.newState !== 'open') return;
    const { right, bottom } = e.target.previousElementSibling.getBoundingClientRect();
    Object.assign(e.target.style, { top: `${bottom + window.scrollY + 4}px`, right: `${document.documentElement.clientWidth - right}px` });
  };
  const act = (f) => (e) => {
    e.currentTarget.closest('[popover]').hidePopover();
    f();
  };
  return html`<button class="icon" type="button" popovertarget=${id} aria-label=${t`Actions for ${title}`}>${icon('ellipsis')}</button><div id=${id} class="menu-of" popover @beforetoggle=${place}>
    <a href=${`/tasks/${encodeURIComponent(task.name)}`} aria-label=${t`Settings of ${title}`}>${t`Settings`}</a>
    <button type="button" class="pick-task" aria-pressed=${floor.chosen.has(task.name)} @click=${act(() => floor.toggle(task.name))}>${
      floor.chosen.has(task.name) ? t`Leave it out` : floor.chosen.size ? t`Show it, too` : t`Show it alone`}</button>
    <button type="button" class="pause" aria-disabled=${String(floor.pausing.has(task.name))} aria-label=${task.paused ? t`Resume ${title}` : t`Pause ${title}`}
      @click=${act(() => floor.pause(task))}>${task.paused ? t`Resume` : t`Pause`}</button>
    <button type="button" class="let-go" aria-disabled=${String(!task.held)} aria-label=${t`Release what is held of ${title} …`}
      @click=${task.held ? act(() => floor.release({ task: task.name })) : nothing}>${t`Release …`}</button>
  </div>`;
}

/** What is known of one task besides its row: its shelf, its backlog, its last run. end: the `run` event of the last one that ended while somebody looked. */
export function factsOf(task, end) {
  const usual = task.usual_seconds * 1000;
  const { backlog } = task;
  const last = task.query === null ? t`Items are pushed to it; nothing has to run.` : end ? ended(end)
    : task.failures ? (task.last_error ? t`The last run failed: ${task.last_error}` : t`The last run failed.`) : usual ? null : t`No runs yet.`;
  return html`<dl class="facts paper">
    <div><dt>${task.query === null ? t`In the inbox` : t`On the shelf`}</dt><dd>${number(task.shelf)}</dd></div>
    ${backlog?.as_of ? html`<div><dt>${t`To do at ${when(backlog.as_of)}`}</dt><dd>${t`${number(backlog.free)} of ${number(backlog.found)}`}</dd></div>` : nothing}
    ${usual ? html`<div><dt>${t`A run usually takes`}</dt><dd>${about(usual)}</dd></div>` : nothing}
    ${last === null ? nothing : html`<div class="long"><dt>${t`Last run`}</dt><dd dir="auto">${last}</dd></div>`}
  </dl>`;
}

function ended({ phase, candidates, duration_ms: ms, at }) {
  const how = {
    finished: t`found ${candidates ?? 0} in ${took(ms)}`,
    failed: t`failed after ${took(ms)}`,
    cancelled: t`was cancelled`,
    lost: t`was lost with its node`,
  }[phase];
  return t`The last run, at ${when(at)}, ${how}.`;
}

/** What is going on, in few words, for screen readers. */
export function summary(tasks, now) {
  const sum = (of) => tasks.reduce((n, task) => n + task[of], 0);
  const waiting = sum('waiting');
  const people = plural(waiting, '{0} person waiting, {1} held', '{0} people waiting, {1} held', sum('held'));
  return t`${people}, ${underWay(tasks.filter((task) => task.running_since), now)}`;
}
