/** The page: log-in, tasks and pipeline. It uses nothing but the public API, through getwork.js. */

import { connect, rest } from './getwork.js';
import { TaskCard, WorkCard, say } from './cards.js';
import { disposed, gone, mayComeBack, parse } from './words.js';

const $ = (id) => document.getElementById(id);
const api = rest();
const tasks = new Map(); // cards by the task's name
const works = new Map(); // cards by the work's id
const lost = new Map(); // cards of work that went back, by task and item
const tabs = new BroadcastChannel('getwork'); // the cookie is the browser's: all its tabs are the same person
let client;
let me;

start();

async function start() {
  try {
    me = await api.me();
  } catch (e) {
    if (e.status !== 401) say($('log-in-error'), e.message);
    $('log-in').hidden = false;
    $('user').focus();
    return;
  }
  $('desk').hidden = $('who').hidden = $('log-out').hidden = $('chip').hidden = false;
  say($('name'), me.user);
  say($('role'), me.role);
  document.title = `${me.user} · getwork`;
  client = connect({ parse });
  client.addEventListener('state', showState);
  client.addEventListener('change', showWork);
  client.addEventListener('gone', (e) => lose(e.detail));
  client.addEventListener('request', (e) => tasks.get(e.detail.task)?.show(e.detail, client.ahead));
  client.addEventListener('run', (e) => tasks.get(e.detail.task)?.ran(e.detail));
  client.addEventListener('task', (e) => tasks.get(e.detail.name)?.update(e.detail));
  client.addEventListener('hello', (e) => {
    if (e.detail.user !== me.user || e.detail.role !== me.role) location.reload();
    for (const card of tasks.values()) card.run = null; // it may have ended while nobody was told
  });
  showState();
  loadTasks();
  setInterval(tick, 1000);
}

$('log-in-form').addEventListener('submit', async (e) => {
  e.preventDefault();
  try {
    await api.logIn($('user').value.trim(), $('as').value);
    tabs.postMessage('log-in');
    location.reload();
  } catch (error) {
    say($('log-in-error'), error.message);
    $('user').focus();
  }
});

$('log-out').addEventListener('click', async () => {
  client.close();
  await api.logOut().catch(() => {});
  tabs.postMessage('log-out');
  location.reload();
});

tabs.addEventListener('message', () => location.reload());

$('resume').addEventListener('click', () => {
  client.resume();
  $('pipeline-title').focus();
});

// And should a message be missed, who comes back to a tab finds it as the cookie says.
document.addEventListener('visibilitychange', sameAsCookie);
window.addEventListener('focus', sameAsCookie);

async function sameAsCookie() {
  if (document.hidden || !client) return;
  const now = await api.me().catch((e) => (e.status === 401 ? {} : me));
  if (now.user !== me.user || now.role !== me.role) location.reload();
}

async function loadTasks() {
  let found;
  try {
    found = await client.tasks();
    say($('tasks-error'), '');
  } catch (e) {
    if (tasks.size === 0) say($('tasks-error'), `The tasks can’t be shown now: ${e.message}.`); // else the banner says it
    return;
  }
  const names = new Set(found.map((t) => t.name));
  for (const [name, card] of tasks) {
    if (names.has(name)) continue;
    card.element.remove();
    tasks.delete(name);
    client.unsubscribe([name]);
  }
  found.forEach((task, i) => {
    if (!tasks.has(task.name)) tasks.set(task.name, newTask(task));
    const card = tasks.get(task.name);
    card.update(task);
    const there = $('tasks').children[i];
    if (there !== card.element) $('tasks').insertBefore(card.element, there ?? null); // moving one takes its focus
  });
  $('no-tasks').hidden = found.length > 0;
  client.subscribe([...names]);
  showWork();
}

function newTask(task) {
  return new TaskCard(
    (count) => client.getWork(task.name, count),
    (request) => client.cancel(request.id),
  );
}

/** Brings the cards in line with what the client knows. */
function showWork() {
  for (const request of client.requests.values()) {
    const card = tasks.get(request.task);
    if (card && card.request !== request) card.show(request, client.ahead);
  }
  for (const [id, card] of works) {
    if (client.work.has(id)) continue;
    works.delete(id);
    leave(card.element);
  }
  const held = [...client.work.values()];
  for (const work of held) {
    if (!works.has(work.id)) works.set(work.id, cardFor(work));
    works.get(work.id).fill(work, client.left(work), tasks.get(work.task)?.task, held.filter((w) => w.task === work.task));
  }
  say($('held'), held.length ? String(held.length) : '');
  $('empty').hidden = works.size + lost.size > 0 || client.state.name === 'connecting';
}

const named = ({ task, item }) => `${task} ${item}`;

/** The card of an item that went back, and is his again; else a new one. */
function cardFor(work) {
  const card = lost.get(named(work)) ?? new WorkCard(work, acts);
  if (!lost.delete(named(work))) $('work').append(card.element);
  return card;
}

/** What the cards' buttons do. */
const acts = {
  async dispose(work, disposition) {
    tell(disposed(await client.dispose(work.id, disposition)));
  },
  extend: (work) => client.extend(work.id),
  async claim(work) {
    await client.claim(work.task, work.item);
    tell(`${work.item}: yours again.`);
  },
  dismiss(work) {
    const card = lost.get(named(work));
    lost.delete(named(work));
    leave(card.element);
    showWork();
  },
};

/** Work is gone. A card that ran out of time, or has something typed in it, stays; else a message is enough. */
function lose(work) {
  const card = works.get(work.id);
  if (!card) return;
  const left = client.left(work);
  const over = left !== null && left < 2000; // to the second is as exact as it is known without push
  const ranOut = work.state === 'expired' || work.exhausted || (work.state === 'held' && over);
  const why = gone(work, over);
  if (!ranOut && !card.note) {
    tell(`${work.item}: ${why}`);
    return;
  }
  works.delete(work.id);
  lost.set(named(work), card);
  card.lose(why, mayComeBack(work));
}

let told = { at: -Infinity, lines: [] };

/** Says something about the pipeline. What is told at the same time stands together. */
function tell(line) {
  const now = performance.now();
  told = { at: now, lines: now - told.at < 1000 ? [...told.lines, line].slice(-5) : [line] };
  say($('said'), told.lines.join('\n'));
}

/** Removes a card; who was in it goes on with the next one. */
function leave(element) {
  const next = element.nextElementSibling ?? element.previousElementSibling;
  const inside = element.contains(document.activeElement) || (document.activeElement === document.body && element.querySelector('button:disabled'));
  element.remove();
  if (inside) (next?.querySelector('h3') ?? $('pipeline-title')).focus();
}

/** Its time is up. Should nobody tell what became of it, it is looked for, once. */
function look(card) {
  const { id, lease_expires_at: until } = card.work;
  if (card.looked === until) return;
  card.looked = until;
  setTimeout(() => client.work.has(id) && client.refresh().catch(() => {}), 2000);
}

// Who is at the page keeps what he holds. Not `scroll`: that comes of what the page does itself, too; whoever scrolls uses
// a wheel, a finger, a key or the pointer.
let active = 0;
for (const type of ['pointerdown', 'pointermove', 'keydown', 'wheel', 'touchmove']) {
  document.addEventListener(type, keep, { capture: true, passive: true });
}

function keep(e) {
  const now = performance.now();
  const still = e.type === 'pointermove' && !e.movementX && !e.movementY; // the page moved, under a hand that did not
  if (!client || document.hidden || still || now - active < 200) return;
  active = now;
  for (const card of works.values()) card.renew(client.left(card.work), now);
}

const chips = { live: 'Live', lagging: 'Late', connecting: 'Connecting …', polling: 'Asking', stopped: 'Stopped' };
let before;

function showState() {
  const { state } = client;
  if (state.reason === 'unauthenticated') location.reload();
  if (state.reason === 'closed') return;
  say($('chip'), chips[state.name]);
  $('chip').dataset.state = state.name;
  const text = bannerText(state);
  say($('banner-text'), text);
  $('banner').hidden = text === '';
  $('resume').hidden = state.name !== 'stopped';
  // What was missed: tasks are not in the snapshot. While asking, their counts are asked for, too.
  if (before && (state.name === 'polling' || (state.name === 'live' && before !== 'lagging'))) loadTasks();
  before = state.name;
  tick();
  showWork();
}

function bannerText(state) {
  const waits = client.requests.size > 0;
  switch (state.name) {
    case 'lagging': return 'Push is late: this server has lost its line to the database’s notifications. Results still come, a few seconds later.';
    case 'polling':
      return state.error
        ? `No answer: ${state.error.message}. ${waits ? 'Your request stays; trying' : 'Trying'} again every ${state.every / 1000} s.`
        : `Push is gone; asking every ${state.every / 1000} s.`;
    case 'stopped': return `Stopped asking, after 15 minutes without push.${waits ? ' Your request stays, and what it brings will be in your pipeline.' : ''}`;
  }
  return '';
}

/** What changes with time alone. */
function tick() {
  const now = Date.now();
  for (const card of tasks.values()) card.tick(now);
  const soon = [...works.values()].filter((card) => card.tick(client.left(card.work)));
  document.title = `${soon.length ? '⏳ ' : ''}${me.user} · getwork`;
  for (const card of soon) {
    if (client.left(card.work) === 0) look(card);
  }
  const { state } = client;
  const next = state.name === 'polling' ? Math.ceil((state.next - now) / 1000) : 0;
  say($('banner-next'), next > 0 ? `Next in ${next} s.` : '');
}
