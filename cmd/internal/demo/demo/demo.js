/**
 * The demo's page: people on the nodes side by side, each in a frame with a page of their own node, and above them a
 * crowd that clicks at once, with getwork and without. Each event carries the whole state; one comes whenever it changes.
 */

import { html, nothing, render, svg } from '/static/lib/lit-html/lit-html.js';
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
    name: 'naive', title: 'Without getwork', what: 'Let some people click',
    text: 'Each runs the query for himself, and takes what is on top.',
    going: (n, count) => `${n} people clicked for ${count} loans each, and ${n} queries run.`,
  },
  {
    name: 'getwork', title: 'With getwork', what: 'Fifty people click',
    text: 'It runs once, on whichever node, for all who wait.',
    going: (n, count) => `${n} people clicked for ${count} loans each, and wait for one query.`,
  },
];

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
  const seen = halves.map((h) => ({ ...h, ...look(now.scenes[h.name]) }));
  const most = {};
  for (const { figures } of seen) {
    for (const f of figures) most[f.label] = Math.max(most[f.label] ?? 0, f.length ?? 0);
  }
  render(html`${seen.map((s) => scene(s, most))}`, $('scenes'));
  $('log-in').hidden = !now.log_in;
  const missing = now.nodes.length < people().length ? html`<p class="empty">${fewer()}</p>` : nothing;
  render(html`${now.nodes.map(pane)}${missing}`, $('panes'));
}

/** A half's figures, and the people who share a loan with somebody else. */
function look(s) {
  const crowd = s.people ?? [];
  const holders = new Map(); // by loan
  for (const p of crowd) for (const item of p.items ?? []) holders.set(item, (holders.get(item) ?? 0) + 1);
  const shared = (p) => (p.items ?? []).filter((item) => holders.get(item) > 1);
  const served = crowd.filter((p) => p.state === 'served');
  const twice = [...holders.values()].filter((n) => n > 1).length;
  const dots = crowd.map((p) => ({ ...p, is: shared(p).length ? 'twice' : p.state, shared: shared(p) }));
  const figures = [];
  if (s.state === 'done') {
    const wait = Math.max(...served.map((p) => p.wait));
    figures.push(
      { label: 'Queries run', text: String(s.queries), length: s.queries },
      {
        label: 'Loans with more than one person', text: `${twice} of ${holders.size}`,
        kind: twice ? 'bad' : 'good', length: twice,
      },
      { label: 'Longest wait', text: took(1000 * wait), length: wait },
    );
    if (s.cpu !== undefined) {
      const each = s.cpu / served.length;
      figures.push({ label: 'PostgreSQL’s CPU time per person', text: took(1000 * each), length: each });
    }
  }
  return { ...s, dots, served, twice, figures };
}

function scene(s, most) {
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
        @click=${start}>${s.what}${s.state && !playing ? ' again' : ''}</button>
      <button type="button" ?hidden=${!playing} @click=${stop}>Stop</button>
    </div>
    <p class="quiet">${s.text}</p>
    <p class="step"><span role="status">${said(s)}</span>${playing && s.dots.length ? progress(s) : nothing}</p>
    ${s.dots.length ? html`<div class="dots" role="img" aria-label=${counted(s)}>${s.dots.map(dot)}</div>${legend(s)}` : nothing}
    ${s.figures.length ? html`<dl class="figures">${s.figures.map((f) => figure(f, most[f.label]))}</dl>` : nothing}
    ${s.name === 'naive' && s.state === 'done' ? honesty(s) : nothing}
    ${s.served.length && !playing ? details(s) : nothing}
  </section>`;
}

const progress = (s) => html` <span
  class="quiet">${s.served.length} of ${s.dots.length} served, after ${span(Date.now() - Date.parse(s.began))}</span>`;

/** A line for each event; it leaves out what changes all the time. */
function said(s) {
  switch (s.state) {
    case 'playing': return s.dots.length ? s.going(s.dots.length, s.count) : `First: ${s.step || 'getting ready'} …`;
    case 'stopped': return 'Stopped.';
    case 'failed': return `It did not work: ${s.error}`;
    case 'done': return `${counted(s)}. ${s.twice ? 'That is the race.' : 'No loan is with two people.'}`;
  }
  return '';
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

function figure(f, most) {
  const bar = svg`<rect width=${`${most ? (100 * f.length) / most : 0}%`} height="100%"></rect>`;
  return html`<div><dt>${f.label}</dt><dd data-kind=${f.kind ?? nothing}>${f.text}</dd>
    <svg class="length" aria-hidden="true">${bar}</svg></div>`;
}

/** Only a few click, so that the race is soon over: the effect of fifty is calculated, and labelled so. */
function honesty(s) {
  const n = s.dots.length;
  if (n >= now.crowd) return nothing;
  const busy = s.cpu ? span((1000 * now.crowd * s.cpu) / n / now.cores) : '';
  const all = ` ${now.crowd} people would keep ${now.cores} cores busy for about ${busy}: that was calculated, not run.`;
  return html`<p class="quiet">Alone, the query takes ${took(1000 * s.alone)}.
    Only ${n} people clicked here, so that it ends soon.${busy ? all : ''}</p>`;
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
      ? html`<iframe src=${node.url + path} title=${title}></iframe>`
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
