/**
 * The demo's page: people on the nodes side by side, each in a frame with a page of their own node, and above them a
 * crowd that clicks at once, with getwork and without. Each event carries the whole state; one comes whenever it changes.
 */

import { html, nothing, render } from '/static/lib/lit-html/lit-html.js';
import { span, took } from '/static/parts.js';

const $ = (id) => document.getElementById(id);

const named = [
  { who: 'Oliver', path: '/#log-in=Oliver' },
  { who: 'Tracy', path: '/#log-in=Tracy' },
  { who: 'Mia, manager', path: '/floor#log-in=Mia,manager' },
];

// With an identity provider, whom each pane is meant for: they log in there.
const loggingIn = [
  { who: 'Oliver', path: '/' },
  { who: 'Tracy', path: '/' },
  { who: 'Mia, manager', path: '/floor' },
  { who: 'Ada, administrator', path: '/users' },
];
const people = () => (now.log_in ? loggingIn : named);

const halves = [
  {
    name: 'naive', title: 'Without getwork',
    text: 'Each of them runs the query, and takes what is on top.',
    going: ({ dots, count }) => `${dots.length} people clicked for ${count} loans each. Each runs a query of their own.`,
    now: ({ waiting, twice }) => `${waiting} queries under way, ${twice} loans handed out twice`,
  },
  {
    name: 'getwork', title: 'With getwork',
    text: 'The query runs once, on one of the nodes, for all who wait.',
    going: running, now: ({ waiting }) => `${waiting} people wait`,
  },
];

const on = (run) => (run.node ? `node ${run.node}` : 'a node that is gone');

/** What the nodes do for the crowd, as it happens. */
function running({ dots, count, waiting, runs = [] }) {
  const run = runs.at(-1);
  if (!run) return `${dots.length} people clicked for ${count} loans each.`;
  if (run.state === 'finished') return `The query on ${on(run)} is done, and its loans are handed out.`;
  if (run.state !== 'running') return `The query on ${on(run)} is lost. Another node takes over.`;
  if (runs.length === 1) return `One query, on ${on(run)}, for ${waiting} people.`;
  const before = runs.at(-2);
  return `${before.state === 'finished' ? '' : `The query on ${on(before)} is lost. `}Another query, on ${on(run)}, for the ${waiting} people who still wait.`;
}

// Each outcome of a person's click: a sign, and its meaning.
const signs = {
  '': ['', 'did not click yet'],
  waits: ['…', 'waits'],
  served: ['✓', 'has loans of their own'],
  twice: ['!', 'has a loan that somebody else has, too'],
  failed: ['–', 'got nothing'],
};

let now; // the state to show; undefined before the first event
const loaded = new Set(); // nodes whose page is in its frame: it stays there when the node is gone, and reconnects by itself

const events = new EventSource('/events');
events.onmessage = (e) => {
  now = JSON.parse(e.data);
  draw();
};
events.onopen = () => tell('');
events.onerror = () => tell('The demo does not answer; perhaps it was ended in its terminal. This page goes on when it is back.');
setInterval(() => now && draw(), 1000); // updates the waiting times

function draw() {
  const [left, right] = halves.map((h) => scene({ ...h, ...look(now.scenes[h.name]) }));
  render(html`${left}${comparison(now.table)}${right}`, $('scenes'));
  $('log-in').hidden = !now.log_in;
  $('shrunk').hidden = !now.shrunk;
  if (now.shrunk) $('shrunk').textContent = `This machine is busy: the query took longer than ten seconds, so the bank has only ${now.shrunk} loans.`;
  const missing = now.nodes.length < people().length ? html`<p class="empty">${fewer()}</p>` : nothing;
  render(html`${now.nodes.map(pane)}${missing}`, $('panes'));
}

/** A half with its people, and those who share a loan with somebody else. */
function look(s) {
  const crowd = s.people ?? [];
  const holders = new Map(); // by loan
  for (const p of crowd) for (const item of p.items ?? []) holders.set(item, (holders.get(item) ?? 0) + 1);
  const shared = (p) => (p.items ?? []).filter((item) => holders.get(item) > 1);
  const served = crowd.filter((p) => p.state === 'served');
  const waiting = crowd.filter((p) => p.state === 'waits').length;
  const twice = [...holders.values()].filter((n) => n > 1).length;
  const dots = crowd.map((p) => ({ ...p, is: shared(p).length ? 'twice' : p.state, shared: shared(p) }));
  return { ...s, dots, served, waiting, twice };
}

function scene(s) {
  const playing = s.state === 'playing';
  const wait = halves.some((h) => now.scenes[h.name].state === 'playing');
  const start = () => wait || post(`/scenes/${s.name}`);
  const stop = (e) => {
    e.target.previousElementSibling.focus(); // this button is about to disappear
    post('/stop');
  };
  return html`<section class="card scene" data-scene=${s.name} data-state=${s.state} aria-labelledby="title-${s.name}">
    <div class="toolbar">
      <h2 id="title-${s.name}">${s.title}</h2>
      <button type="button" class="primary push" aria-disabled=${wait}
        @click=${start}>Fifty people click</button>
      <button type="button" ?hidden=${!playing} @click=${stop}>Stop</button>
    </div>
    <p class="quiet">${s.text}</p>
    <p role="status">${said(s)}</p>
    ${playing && s.since ? html`<p class="clock" aria-hidden="true">${span(Date.now() - Date.parse(s.since))}</p>` : nothing}
    ${playing && s.dots.length ? progress(s) : nothing}
    ${s.dots.length ? html`<div class="dots" role="img" aria-label=${counted(s)}>${s.dots.map(dot)}</div>${legend(s)}` : nothing}
    ${s.served.length && !playing ? details(s) : nothing}
  </section>`;
}

/** Both halves side by side: the table that getwork demo --naive prints. */
function comparison(t) {
  const cell = (row, c) => (c && c === t.projected ? html`<i>${row[c]}</i>` : row[c]);
  return html`<section class="card scene" id="comparison" aria-labelledby="title-comparison">
    <h2 id="title-comparison">The same click, both ways</h2>
    ${t ? html`<div class="scroll" tabindex="0" role="region" aria-label="Table of both halves"><table>
      <thead><tr><td></td>${t.heads.map((head) => html`<th scope="col" class="number">${head}</th>`)}</tr></thead>
      <tbody>${t.rows.map((row) => html`<tr><th scope="row">${row[0]}</th>
        ${t.heads.map((_, i) => html`<td class="number">${cell(row, i + 1)}</td>`)}</tr>`)}</tbody>
    </table></div>` : html`<p class="lead">Let fifty people click on the left, and then on the right. This table says what it took.</p>`}
    ${t?.projected ? html`<p class="quiet">${projection()}</p>` : nothing}
  </section>`;
}

const projection = () => `${now.crowd} people, each with their own query, would keep the ${now.cores} cores busy for minutes, so fewer `
  + 'clicked. The column with ≈ was calculated from them, not run.';

/** What changes all the time; a screen reader is told only what said() has. */
const progress = (s) => html`<p class="quiet now">${s.now(s)}; ${s.served.length} of ${s.dots.length} served,
  after ${span(Date.now() - Date.parse(s.began))}</p>
  <progress max=${s.dots.length} .value=${s.served.length} aria-label="People served, ${s.title.toLowerCase()}"></progress>`;

/** A line for each event. */
function said(s) {
  switch (s.state) {
    case 'playing': return s.dots.length ? s.going(s) : `First: ${s.step || 'getting ready'} …`;
    case 'stopped': return 'Stopped.';
    case 'failed': return `It did not work: ${s.error}`;
    case 'done': return [`${counted(s)}.`, ...outcome(s)].join(' ');
  }
  return '';
}

function outcome(s) {
  const fewer = s.dots.length < now.crowd ? `Only ${s.dots.length} clicked, so that it ends soon: alone, the query takes ${took(1000 * s.alone)}.` : '';
  const by = !s.runs ? '' : s.runs.length === 1 ? `One query ran, on ${on(s.runs[0])}, for ${s.served.length} people.` : `${s.runs.length} queries ran.`;
  const gone = s.gone ? 'They gave their loans back, and figures about people no longer count them.' : '';
  return [s.twice ? 'That is the race.' : 'No loan is with two people.', by, fewer, gone].filter(Boolean);
}

function counted({ dots, served }) {
  const twice = dots.filter((d) => d.is === 'twice').length;
  return `${served.length} of ${dots.length} people served${twice ? `, ${twice} with a loan that somebody else has, too` : ''}`;
}

function dot(d, i) {
  return html`<span class="dot" data-is=${d.is} title=${`Person ${i + 1} ${story(d)}`}>${signs[d.is][0]}</span>`;
}

function story(d) {
  const waited = d.wait ? ` after ${took(1000 * d.wait)}` : '';
  if (d.state === 'failed') return `got nothing${waited}: ${d.error}`;
  if (d.state !== 'served') return signs[d.state][1];
  return `has loans ${d.items.join(', ')}${waited}${d.shared.length ? `; others have ${d.shared.join(', ')}, too` : ''}`;
}

function legend(s) {
  const kinds = [...new Set(s.dots.map((d) => d.is))];
  if (kinds.length < 2) return nothing; // the line above says this already
  return html`<ul class="legend">${kinds.map((is) => html`<li><span class="dot" data-is=${is}
    aria-hidden="true">${signs[is][0]}</span>${signs[is][1]}</li>`)}</ul>`;
}

const details = (s) => html`<details><summary>Who got what</summary>
  <div class="scroll" tabindex="0" role="region" aria-label="Who got what, ${s.title.toLowerCase()}"><table>
    <thead><tr><th scope="col">Person</th><th scope="col">Loans</th><th scope="col">With others, too</th>
      <th scope="col" class="number">Wait</th></tr></thead>
    <tbody>${s.dots.map((d, i) => html`<tr><td>${i + 1}</td><td>${d.items?.join(', ') ?? d.error ?? '–'}</td>
      <td>${d.shared.join(', ') || '–'}</td><td class="number">${d.wait ? took(1000 * d.wait) : '–'}</td></tr>`)}</tbody>
  </table></div></details>`;

function pane(node, i) {
  const { who, path = '/' } = people()[i] ?? {};
  const title = who ? `${who} · node ${i + 1}` : `Node ${i + 1}`;
  const what = node.lives ? 'Kill' : 'Start';
  if (node.lives) loaded.add(node.url);
  return html`<section class="card pane" data-node=${i + 1} aria-label=${title}>
    <header>
      <h2>${title}</h2>
      ${node.lives ? nothing : html`<span class="badge" data-kind="bad">killed</span>`}
      <a class="push" href=${node.url + path} target="_blank">New tab</a>
      <button type="button" aria-label="${what} node ${i + 1}"
        @click=${() => post(`/nodes/${i + 1}/${what.toLowerCase()}`)}>${what}</button>
    </header>
    ${!who ? nothing : loaded.has(node.url)
      ? html`<div class="frame"><iframe src=${node.url + path} title=${title}></iframe></div>`
      : html`<p class="down">This node was killed. Start it, to see its page.</p>`}
  </section>`;
}

function fewer() {
  const missing = people().slice(now.nodes.length).map((p) => p.who.split(',')[0]).join(' and ');
  return `A browser is one person on each node, so there is no room for ${missing} here: run getwork demo with ${now.log_in ? 'four' : 'three'} `
    + 'nodes or more.';
}

async function post(path) {
  tell('');
  try {
    const answer = await fetch(path, { method: 'POST' });
    if (!answer.ok) tell(`It did not work: ${await answer.text()}`);
  } catch {
    tell('The demo does not answer. Is it still running in its terminal?');
  }
}

function tell(text) {
  $('error').textContent = text;
}
