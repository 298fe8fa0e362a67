/**
 * The page's shell: the user, the connection to the server, and the current view. It uses only the public API, through
 * getwork.js.
 *
 * A view is a module with open(app, place), which shows itself in place.element:
 *   app    {client, api, me, go(path), style(name), keys(shortcuts, signal), say(line), leaving}: getwork.js's client and REST calls; what
 *          api.me() has said; opens another view; adds keyboard shortcuts; announces a line, also to screen readers; and
 *          a Set of functions whose promises are awaited before a log-out: false prevents it
 *   place  {element, name, search, signal}: where to draw; what follows the view's path, such as a task's name, or '';
 *          the address's parameters; and a signal that is aborted when the view is left, for listeners and calls
 */

import { Problem, connect, rest } from './getwork.js';
import { shortcuts } from './keys.js';
import { Alerts } from './alerts.js';
import { goBy } from './now.js';
import './theme.js';
import { speak, speakIn, t, translate } from './lang.js';
import { faceOf, initials, parse, roleName } from './words.js';

const $ = (id) => document.getElementById(id);
const tabs = new BroadcastChannel('getwork'); // the cookie is the browser's: all its tabs are the same person
const away = (status) => status === 0 || status === 429 || status >= 500; // the server is away or busy
const out = ['unauthenticated', 'forbidden']; // the client's reasons to stop for good
const works = ({ role }) => ['worker', 'agent', 'manager'].includes(role);
const watches = ({ role, wall }) => !wall && ['observer', 'manager'].includes(role);
const manages = ({ role }) => role === 'manager';
const views = [
  { path: '/', title: t`Desk`, may: works, style: 'look/desk.css', load: () => import('./views/desk.js') },
  { path: '/floor', title: t`Floor`, may: watches, style: 'look/floor.css', load: () => import('./views/floor.js') },
  { path: '/tasks', title: t`Tasks`, may: manages, style: 'look/task.css', load: () => import('./views/tasks.js').then((tasks) => tasks.load()) },
  { path: '/items', title: t`Items`, may: manages, style: 'look/items.css', load: () => import('./views/items.js') },
  { path: '/people', title: t`People`, may: watches, style: 'look/floor.css', load: () => import('./views/people.js') },
  { path: '/limits', title: t`Limits`, may: watches, load: () => import('./views/limits.js') },
  { path: '/wall', title: t`Wall`, may: ({ role }) => role, style: 'look/wall.css', load: () => import('./views/wall.js') },
  { path: '/users', title: t`Users`, may: ({ admin }) => admin, logIn: true, style: 'look/account.css', load: () => import('./views/users.js') },
  { path: '/audit', title: t`Audit`, may: ({ admin }) => admin, logIn: true, style: 'look/account.css', load: () => import('./views/audit.js') },
  { path: '/webhooks', title: t`Web hooks`, may: (me) => manages(me) || me.admin, style: 'look/account.css', load: () => import('./views/webhooks.js') },
  { path: '/account', may: ({ by, wall }) => by !== 'dev' && !wall, logIn: true, style: 'look/account.css', load: () => import('./views/account.js') },
];

const leaving = 'getwork.leaving'; // in sessionStorage: the page was loaded again for a log-out, which goes on then

let app;
let greeted = false; // the server has said hello once
let leave = new AbortController(); // the view that is shown

$('not-loaded').remove();
speakIn(document.body);
$('skip').addEventListener('click', (e) => {
  e.preventDefault();
  const to = document.getElementById('item') ?? $('view');
  to.focus();
});
start();

async function start() {
  const api = rest({ parse, translate, fetch: noticing });
  let me;
  try {
    await logInAsAsked(api);
    me = await api.me();
  } catch (e) {
    if (away(e.status)) {
      startLater(e);
      return;
    }
    $('banner').hidden = true;
    const before = forgetOthers();
    const { showLogIn } = await whole(import('./login.js'));
    showLogIn($('log-in'), { api, problem: e, before, entered: () => tabs.postMessage('log-in') });
    return;
  }
  forgetOthers(me.user);
  $('banner').hidden = true;
  const client = me.role ? connect({ parse, translate, watch: !works(me), fetch: unlessReplaced }) : (await whole(import('./administrator.js'))).connect(api);
  goBy(client);
  app = { api, client, me, go, style, say: announce, keys: shortcuts($('help')), leaving: new Set() };
  if (watches(me)) app.alerts = new Alerts(app);
  $('skip').hidden = $('view').hidden = $('who').hidden = $('help').hidden = false;
  $('chip').hidden = !me.role;
  $('log-out').hidden = me.by !== 'dev' && !me.log_out;
  say($('face'), initials(me.user));
  $('face').dataset.face = faceOf(me.user);
  say($('name'), me.user);
  say($('role'), roleName(me.role ?? 'administrator'));
  showLinks();
  client.addEventListener('state', showState);
  client.addEventListener('hello', (e) => {
    if (isAnother(e.detail)) reloadAs(e.detail.user);
    if (greeted) {
      offerNewer();
      if (me.by !== 'dev') sameAsCookie(); // their rights may have changed in other ways than the role
    }
    greeted = true;
  });
  showState();
  show();
  // Whatever view is shown, dispositions that the former page could not send are sent.
  const unsent = Object.keys(sessionStorage).some((key) => key.startsWith('getwork.desk.'));
  if (unsent && works(me)) speak('desk').then(() => import('./views/desk.js')).then((desk) => desk.wake(app), () => {});
  setInterval(tick, 1000);
  if (sessionStorage.getItem(leaving) !== null) {
    sessionStorage.removeItem(leaving);
    logOut();
  }
  import('./session.js').catch(orNewer('session')).then((session) => session.open(app), (e) => announce(t`Your menu can’t be loaded: ${e.message}.`));
  if (me.by === 'dev') return;
  if (localStorage.getItem('getwork.in') === String(me.ends_at)) return;
  localStorage.setItem('getwork.in', me.ends_at); // a new session has replaced the browser's former one, in all tabs
  tabs.postMessage('log-in');
}

/**
 * Makes a call. If another session has replaced this page's, which is about to be told, it makes no command: that would be in the
 * name of the other session's user.
 */
async function unlessReplaced(path, init) {
  const now = localStorage.getItem('getwork.in');
  if (init.method !== 'GET' && app && now && isOtherSession(now)) throw new TypeError('another session');
  return fetch(path, init);
}

/** A view's call was refused: if nobody is logged in any more, the client says so. Some calls want a newer log-in alone. */
async function noticing(...args) {
  const response = await unlessReplaced(...args);
  if (response.status === 401) app?.client.me().catch(() => {});
  return response;
}

/** A module without which nothing is shown. If it can't be loaded, the page is loaded again. */
const whole = (module) => module.catch(orNewer('whole')).catch(() => {
  startLater(new Problem(0, { detail: t`this page did not load whole` }), () => location.reload());
  return new Promise(() => {});
});

/** The server can't be asked for the user now. */
function startLater(e, again = start) {
  const wait = Math.max(5000, e.retryAfter);
  say($('banner-text'), t`No answer: ${e.message}. Trying again every ${wait / 1000} s.`);
  $('banner').hidden = false;
  setTimeout(again, wait);
}

/**
 * Views keep a user's input in this tab's storage. It is removed when the user logs out, here or in another tab, even if this
 * tab was asleep then, and when another user is logged in. If the session ends, what was typed or not sent yet waits for the
 * same user. Returns whether something waits, or undefined if nobody was logged in here before.
 */
function forgetOthers(user) {
  const left = localStorage.getItem('getwork.left') ?? ''; // the time of the last log-out
  const [before, whose] = JSON.parse(sessionStorage.getItem('getwork.whose')) ?? [];
  if (before !== left || (user && whose !== user)) forget();
  if (user) sessionStorage.setItem('getwork.whose', JSON.stringify([left, user]));
  else forget((key) => !/^getwork(\.whose|\.desk\.|\.token\.| draft: )/.test(key));
  const kept = Object.keys(sessionStorage).filter((key) => key.startsWith('getwork'));
  return kept.length ? kept.length > 1 : undefined;
}

function forget(which = () => true) {
  for (const key of Object.keys(sessionStorage)) if (key.startsWith('getwork') && which(key)) sessionStorage.removeItem(key);
}

/** Under --auth dev, a link such as /#log-in=Oliver or /#log-in=Mia,manager logs in. */
async function logInAsAsked(api) {
  const [, asked] = location.hash.match(/^#log-in=(.+)$/) ?? [];
  if (!asked) return;
  const [user, role] = decodeURIComponent(asked).split(',');
  const me = await api.me().catch(() => ({}));
  const other = me.user !== user || me.role !== (role ?? 'worker');
  const refusal = other ? await api.logIn(user, role).then(() => null, (e) => e) : null;
  if (away(refusal?.status)) throw refusal; // the caller tries again
  history.replaceState(null, '', location.pathname + location.search);
  if (refusal?.status === 404) return; // here a name is not enough
  if (refusal) throw refusal;
  if (other) tabs.postMessage('log-in');
}

let loggingOut = null;
$('log-out').addEventListener('click', () => logOut());

function logOut() {
  loggingOut ??= import('./leave.js').catch(orNewer(leaving)).then(({ leave }) => leave(app, forget)).then((next) => {
    if (!next) return;
    tabs.postMessage('log-out');
    location.assign(next);
  }).catch((e) => announce(t`You are still logged in: ${e.message}.`)).finally(() => {
    loggingOut = null;
    showState(); // it may have ended meanwhile
  });
}

tabs.addEventListener('message', async ({ data }) => {
  if (data === 'log-out') app?.client.close(); // without asking, and keeping nothing
  const now = data === 'log-in' ? await app?.api.me().catch(() => null) : null;
  if (!now || isAnother(now)) reloadAs(now?.user);
});

/** Another user, or the same with other rights or in a newer session, in whose name this page makes no command. */
const isAnother = ({ user, role, admin = app.me.admin, ends_at: end }) => user !== app.me.user || role !== app.me.role || admin !== app.me.admin
  || Boolean(end && isOtherSession(end));

/** Sessions differ in their end, which nodes may write in different zones. Of other log-ins, such as JWTs, the end says nothing. */
const isOtherSession = (end) => app.me.by === 'session' && Date.parse(end) !== Date.parse(app.me.ends_at);

/** Reloads the page. If another user is logged in by now, nothing of this page is sent, and no question is asked. */
function reloadAs(user) {
  if (user && app && user !== app.me.user) app.client.close();
  hide();
  location.reload();
}

// The browser's Back, or a tab that was frozen, may show a page of a user who has logged out since: it is shown once that is known.
window.addEventListener('pagehide', hide);
window.addEventListener('pageshow', (e) => { if (e.persisted) location.reload(); });
document.addEventListener('freeze', hide);
document.addEventListener('resume', sameAsCookie);

function hide() { document.body.hidden = true; }

$('resume').addEventListener('click', () => {
  app.client.resume();
  $('view').focus();
});

// If a tab missed the message, it checks the cookie when it becomes visible.
document.addEventListener('visibilitychange', sameAsCookie);
window.addEventListener('focus', sameAsCookie);

async function sameAsCookie() {
  if (document.hidden || !app) return;
  const now = await app.client.me().catch(() => app.me); // if nobody is logged in, the client's state says so
  if (isAnother(now)) reloadAs(now.user);
  else document.body.hidden = out.includes(app.client.state.reason);
}

// Views.

const viewAt = (path) => views.find((v) => v.path === path || (v.path !== '/' && path.startsWith(`${v.path}/`)));

function showLinks() {
  const mine = views.filter((v) => v.title && v.may(app.me));
  const links = () => mine.map((v) => Object.assign(document.createElement('a'), { href: v.path, textContent: v.title }));
  $('views').prepend(...links());
  $('rest').append(...links());
  $('views').hidden = mine.length < 2;
  new ResizeObserver(fold).observe($('views'));
}

/** Puts links that have no room in the bar behind “More”. */
function fold() {
  const [bar, rest] = [$('views'), $('rest')].map((nav) => [...nav.querySelectorAll('a')]);
  const fits = (n) => {
    bar.forEach((link, i) => { link.hidden = i >= n; });
    rest.forEach((link, i) => { link.hidden = i < n; });
    $('more').hidden = n === bar.length;
    return $('views').scrollWidth <= $('views').clientWidth;
  };
  let [least, most] = [1, bar.length];
  for (let n = most; least < most; n = Math.ceil((least + most) / 2)) { // each try lays out the page
    if (fits(n)) least = n;
    else most = n - 1;
  }
  fits(least);
}

for (const id of ['rest', 'me-menu']) $(id).addEventListener('click', (e) => { if (e.target.closest('a, button')) $(id).hidePopover(); });
$('rest').addEventListener('beforetoggle', () => {
  const { right, bottom } = $('more').getBoundingClientRect();
  Object.assign($('rest').style, { top: `${bottom + window.scrollY + 6}px`, right: `${document.documentElement.clientWidth - right}px` });
});

/** Opens another view, or the same with other parameters. replace: without a new entry in the browser's history. */
function go(path, { replace = false } = {}) {
  history[replace ? 'replaceState' : 'pushState'](null, '', path);
  show().then(() => { // which may take a while: a user who is in a field by then stays there, or their letters would be shortcuts
    if (!$('view').contains(document.activeElement)) $('view').focus();
  });
}

window.addEventListener('popstate', () => { if (app) show(); });

document.addEventListener('click', (e) => {
  const link = e.target.closest?.('a[href]');
  const elsewhere = !link || !app || link.origin !== location.origin || link.target || link.hasAttribute('download') || !viewAt(link.pathname);
  if (elsewhere || e.defaultPrevented || e.button || e.metaKey || e.ctrlKey || e.shiftKey || e.altKey) return;
  e.preventDefault();
  go(link.pathname + link.search);
});

async function show() {
  leave.abort();
  leave = new AbortController();
  const { signal } = leave;
  const mine = views.filter((v) => v.may(app.me));
  let view = viewAt(location.pathname);
  if (view?.logIn && app.me.by === 'dev') view = { ...view, load: () => Promise.resolve({ open: showNobody }) };
  else if (!mine.includes(view)) { // an observer has no pipeline, and a worker no floor
    [view] = mine;
    history.replaceState(null, '', view.path);
  }
  for (const link of [...$('views').children, ...$('rest').children]) {
    if (link.pathname === view.path) link.setAttribute('aria-current', 'page');
    else link.removeAttribute('aria-current');
  }
  fold(); // the current link is wider
  document.title = titleOf(view);
  const element = document.createElement('div');
  element.dataset.view = view.path.slice(1) || 'desk';
  try {
    const name = decodeURIComponent(location.pathname.slice(view.path.length + 1));
    const part = view.path.slice(1) || 'desk';
    const parts = ['users', 'webhooks'].includes(part) ? ['account', part] : [part]; // they show some of what the account does
    const [{ open }] = await Promise.all([speak(...parts).then(view.load), style(view.style), app.alerts?.first]).catch(orNewer(view.path));

    if (signal.aborted) return;
    $('view').replaceChildren(element);
    await open(app, { element, name, search: new URLSearchParams(location.search), signal });
  } catch (e) {
    if (!signal.aborted) {
      element.append(Object.assign(document.createElement('p'), { className: 'error', textContent: t`This view can’t be shown: ${e.message}` }));
      $('view').replaceChildren(element);
    }
    if (!(e instanceof Problem)) throw e; // a mistake of ours, for the console
  }
}

/** Says why a view is empty: it is about log-ins, and under --auth dev nobody logs in. */
function showNobody(_, { element }) {
  const text = t`Nobody logs in at this node: under --auth dev a name is enough. So there are no accounts, no sessions, no tokens and no audit to show; with getwork serve --auth oidc there are.`;
  element.className = 'page';
  element.append(Object.assign(document.createElement('p'), { className: 'empty', textContent: text }));
}

/** Loads style sheets that not all views need, with a space between several. */
function style(names) {
  return Promise.all((names ?? '').split(' ').filter(Boolean).map(sheet));
}

function sheet(name) {
  const { href } = new URL(name, import.meta.url);
  if (document.querySelector(`head > [rel=stylesheet][href="${new URL(href).pathname}"]`)) return null;
  const link = Object.assign(document.createElement('link'), { rel: 'stylesheet', href: new URL(href).pathname });
  const loaded = new Promise((done, failed) => {
    link.onload = done;
    link.onerror = () => {
      link.remove(); // it would count as loaded
      failed(new Problem(0, { detail: t`its style sheet can’t be loaded` }));
    };
  });
  document.head.append(link);
  return loaded;
}

/** The page as the server has it by now; null: the server can't be asked. */
const served = () => fetch('/', { cache: 'no-cache' }).then((answer) => (answer.ok ? answer.text() : null)).catch(() => null);

/** Reports whether that is another version; the version is in this module's address. */
const isNewer = (page) => page !== null && !page.includes(new URL(import.meta.url).pathname);

/** After a reconnect the node may be newer. A reload would lose input, so the user decides. */
async function offerNewer() {
  $('newer').hidden = !isNewer(await served());
}

$('newer').addEventListener('click', () => location.reload());

const unloaded = new Set(); // parts of the page

/**
 * A part of the page can't be loaded. Modules of two versions must not be mixed, so a newer page replaces this one. Otherwise the server
 * is away, which the browser's TypeError would say in its own words and language. Some browsers, such as Firefox before 155, never ask
 * for a module again that has failed while the page is open (whatwg/html#6768): the second time that a part fails although the server
 * answers, the page is loaded again, but not within half a minute of the last time.
 */
const orNewer = (part) => async (e) => {
  const page = await served();
  const missing = e instanceof TypeError;
  const again = missing && page !== null && unloaded.has(part) && performance.now() > 30_000;
  const problem = missing ? new Problem(0, { detail: t`a part of this page can’t be loaded now; try again in a moment` }) : e;
  if (missing) unloaded.add(part);
  if (!again && !isNewer(page)) throw problem;
  if (part === leaving) sessionStorage.setItem(leaving, '');
  location.reload();
  return new Promise((_, failed) => {
    setTimeout(() => { // the user has chosen to stay
      sessionStorage.removeItem(leaving);
      failed(problem);
    }, 3000);
  });
};

const titleOf = (view) => `${view.path === '/' ? app.me.user : view.title ?? t`Your account`} · getwork`;

// The connection to the server.

const chips = { live: t`Live`, lagging: t`Late`, connecting: t`Connecting …`, polling: t`Polling`, stopped: t`Stopped` };

function showState() {
  const { state } = app.client;
  if (out.includes(state.reason)) { // nothing of the user stays on the screen, or in memory
    hide();
    if (!loggingOut) location.reload();
    for (const question of document.querySelectorAll('dialog[open]')) question.close(); // a log-out would wait for an answer for ever
    return;
  }
  if (state.reason === 'closed') return;
  say($('chip'), chips[state.name]);
  $('chip').dataset.state = state.name;
  const text = bannerText(state);
  say($('banner-text'), text);
  $('banner').hidden = text === '';
  $('resume').hidden = state.name !== 'stopped';
  tick();
}

function bannerText(state) {
  const waits = app.client.requests.size > 0;
  switch (state.name) {
    case 'lagging': return t`Updates are late: this server has lost its line to the database’s notifications. Results still come, a few seconds later.`;
    case 'polling':
      return state.error
        ? waits ? t`No answer: ${state.error.message}. Your request stays; trying again every ${state.every / 1000} s.`
          : t`No answer: ${state.error.message}. Trying again every ${state.every / 1000} s.`
        : t`The live connection is lost; polling every ${state.every / 1000} s.`;
    case 'stopped': return waits ? t`Stopped polling after 15 minutes without a live connection. Your request stays, and what it brings will be in your pipeline.`
      : t`Stopped polling after 15 minutes without a live connection.`;
  }
  return '';
}

function tick() {
  const { state } = app.client;
  const next = state.name === 'polling' ? Math.ceil((state.next - Date.now()) / 1000) : 0;
  say($('banner-next'), next > 0 ? t`Next in ${next} s.` : '');
}

/** Announces a line to screen readers, and shows it for a while. */
function announce(line) {
  say($('said'), line);
  clearTimeout(announce.timer);
  announce.timer = setTimeout(() => say($('said'), ''), 8000);
}

/** Sets a text only if it changes, so that it is announced only then. */
function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}
