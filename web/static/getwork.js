/**
 * A client for getwork in one module, without dependencies, for browsers, workers, Node 22 and later, and everything else
 * that has fetch and WebSocket. docs/client.md describes how to use it.
 *
 *     import { connect } from '/static/getwork.js';
 *     const client = connect();
 *     client.addEventListener('change', () => show(client.work, client.requests));
 *     client.addEventListener('state', (e) => console.log(e.detail.name));
 *     await client.getWork('verify-bank-account', 3);
 *     await client.extend(id);
 *     await client.dispose(id, { outcome: 'complete' });
 *     client.close();
 *
 * It keeps the caller's pipeline: `client.work`, `client.requests` (the pending ones) and `client.absences` (in force or to come)
 * are Maps by id, with the REST API's objects. Changes are pushed over a WebSocket. While it is down, the client reads the pending requests and the
 * pipeline after 5, then 10, then every 20 s. It tries the socket again now and then, and at once when the network is
 * back or the user returns to the page.
 *
 * Events, each a CustomEvent with `detail`:
 *   state    {name, …}: see State below
 *   change   the Maps have changed
 *   request  a request that is new or has changed; an ended one comes exactly once, with the state 'lost' if the server does not
 *            know it any more
 *   reviewed work that this user completed, with how it was let go of in the task that it went on to in earlier
 *   gone     work that left the pipeline, but was not closed by this client. Its state says why; if that is 'held', the
 *            reason is unknown: it is only no longer in the pipeline. It comes before `change`
 *   absence  an absence of the caller's was entered or has ended: it has ended_at then
 *   run      a run's phase, for a task that the caller waits for or subscribed to
 *   task     a subscribed task with its counts
 *   tasks    a task is new, changed or deleted: a program that shows a list of tasks reads it again, after a random delay,
 *            because all clients hear of it at once. It also comes with the first snapshot: an earlier list may be old
 *   reread   other data than the pipeline may be old, because push was down: read it again. It comes with every poll while
 *            push is down, and with each snapshot but the first
 *   hello    the caller's identity as the server knows it
 *   problem  a Problem that the server sent over the socket
 *
 * State: one of
 *   {name: 'connecting'}                       no socket yet, and no polling yet
 *   {name: 'live'}                             changes are pushed
 *   {name: 'lagging'}                          changes are pushed some seconds late: the node lost its notifications
 *   {name: 'polling', every, next, error?}     asking every so many ms, next at that time; error: the last poll failed
 *   {name: 'stopped', reason}                  'patience': 15 minutes of polling are over; requests stay pending, and
 *                                              resume() or returning to the page goes on. A client with `watch` is never
 *                                              stopped so. 'unauthenticated': log in. 'forbidden': the account is blocked, or
 *                                              has no role any more. 'closed': by close()
 */

/** The state of work after a disposition, by outcome. */
const becomes = { complete: ['completed'], return: ['returned'], never: ['never'], fail: ['failed', 'never'] };

/** Delays in milliseconds; pass others as connect({delays}). */
const defaults = {
  poll: [5_000, 10_000, 20_000],
  stop: 15 * 60_000, // of polling without a socket
  socket: [500, 30_000], // the first wait before another attempt, doubled each time, and the longest
  ping: 25_000, // a socket that was silent for so long is pinged
  silence: 5_000, // a socket that does not answer within this, or does not send hello, is given up
  steady: 10_000, // a socket that lasted so long counts as having worked
  wake: 1_000, // at most, after the network is back: a whole office reconnects at once
};

/** The most tasks in one message: the server reads 20 messages a second, and pongs behind them. */
const inMessage = 50;

/**
 * The error of a call: RFC 9457's members; `retryAfter` in ms, 0 if the server did not say; and `logIn`, the path to log in at, if
 * the server named one. Status 0: no answer at all.
 */
export class Problem extends Error {
  constructor(status, body = {}, retryAfter = 0) {
    super(body.detail || body.title || `the server answered with status ${status}`);
    this.name = 'Problem';
    this.status = status;
    this.type = body.type ?? 'about:blank';
    this.title = body.title ?? '';
    this.detail = this.message;
    this.errors = body.errors ?? [];
    this.logIn = body.log_in ?? '';
    this.retryAfter = retryAfter;
  }
}

/**
 * The REST calls alone, without anything live. Each returns a promise that fails with a Problem.
 *
 * A call that is answered 429 has not begun: it is repeated when Retry-After says, at most twice, unless that is more than a
 * minute away, as after too many tokens within an hour. A call that is answered
 * 503 may have been executed, so the caller decides. Repeating is safe, except for getWork without an Idempotency-Key.
 *
 * Options are those of connect(); dated, if given, is called with the server's time (ms) of each answer, to the second.
 */
export function rest({ url = '', headers: always, fetch = (...args) => globalThis.fetch(...args), parse = JSON.parse, clock = globalThis, dated, translate = (e) => e } = {}) {
  async function once(method, path, { body, headers, within = 30_000, keepalive = false, signal } = {}) {
    const late = AbortSignal.timeout(within);
    const init = { method, headers: { ...always, ...headers }, cache: 'no-store', keepalive, signal: signal ? AbortSignal.any([signal, late]) : late };
    if (body !== undefined) {
      init.headers['Content-Type'] = 'application/json';
      init.body = JSON.stringify(body);
    }
    let response, text;
    try {
      response = await fetch(url + path, init);
      dated?.(Date.parse(response.headers.get('Date')));
      text = await response.text();
    } catch (e) {
      const detail = e.name === 'TimeoutError' ? `the server has not answered within ${within / 1000} s` : 'the server can’t be reached';
      throw new Problem(0, { type: '/problems/unavailable', title: 'No answer', detail });
    }
    const json = /\bjson\b/.test(response.headers.get('Content-Type') ?? '') ? parse(text) : undefined;
    if (!response.ok && response.status !== 304) {
      throw new Problem(response.status, json, 1000 * (Number(response.headers.get('Retry-After')) || 0));
    }
    const [, next] = /<([^>]*)>; *rel="next"/.exec(response.headers.get('Link') ?? '') ?? [];
    return { status: response.status, tag: response.headers.get('ETag'), next, body: json ?? (text || undefined) };
  }
  /**
   * Makes any call: options {body, headers, within: ms, keepalive, signal: aborts it, repeats: how often it is repeated after a
   * 429}; the answer is {status, tag, next: the address of a table's next page, if there is one, body: JSON, or other text}.
   */
  async function call(method, path, { repeats = 2, ...options } = {}) {
    for (let more = repeats; ; more--) {
      try {
        nameable(path);
        return await once(method, path, options);
      } catch (e) {
        if (e.status !== 429 || more === 0 || e.retryAfter > 60_000) throw await translate(e);
        await new Promise((resolve) => clock.setTimeout(resolve, e.retryAfter || 2_000));
      }
    }
  }
  const api = '/api/v1';
  const segment = encodeURIComponent;
  const patience = 180_000; // ms, of calls that may have to run a task's query
  const taskAt = (name) => `${api}/tasks/${segment(name)}`;
  const get = async (path, filter = {}) => {
    const given = Object.entries(filter).filter(([, v]) => v !== undefined && v !== null && v !== '');
    return (await call('GET', given.length ? `${path}?${new URLSearchParams(given)}` : path)).body;
  };
  const send = async (method, path, body, options) => (await call(method, path, { body, ...options })).body;
  return {
    call,

    // For everybody.
    /** For a page under --auth dev, where a name is enough: the browser keeps it as a cookie. */
    logIn: async (user, role = 'worker') => void (await call('POST', '/login', { body: { user, role } })),
    logOut: async () => void (await call('POST', '/logout')),
    /** {user, role?, groups, admin, by, ends_at, idle_at?, log_out, open?, max_open?, away: the absence that is in force, or null} */
    me: () => get(`${api}/me`),
    tasks: async () => (await get(`${api}/tasks`)).tasks,
    /** A task, and the tag that a change of it must send. */
    task: async (name) => {
      const { body, tag } = await call('GET', taskAt(name));
      return { task: body, tag };
    },

    /** Absences that are in force or to come, everybody's for managers and observers: filter {user, cursor, limit}. */
    absences: (filter) => get(`${api}/absences`, filter),
    /** Enters an absence: {user?: for managers, from?, until?, substitute?}; without from it begins now. */
    away: (absence = {}) => send('POST', `${api}/absences`, absence),
    /** Ends an absence. */
    back: (id) => send('DELETE', `${api}/absences/${segment(id)}`),

    /** What somebody can, beside their groups: the names of skills. */
    skills: (user) => get(`${api}/people/${segment(user)}/skills`),
    /** Replaces them; for managers. */
    setSkills: (user, skills) => send('PUT', `${api}/people/${segment(user)}/skills`, skills),

    // For workers. The methods that connect()'s client has, too, are described there.
    /** {work: […], requests: […pending…]} */
    pipeline: () => get(`${api}/pipeline`),
    /** Their own day: {done, ended: […], left, late, tasks}; filter {since}. */
    day: (filter) => get(`${api}/day`, filter),
    /** {status, tag, body}: with the tag of a former answer, an unchanged state is answered 304, without a body. */
    request: (id, tag) => call('GET', `${api}/requests/${segment(id)}`, { headers: tag ? { 'If-None-Match': tag } : {} }),
    /** body {count, linger?, lease?}; the answer is {status, tag, body}. */
    getWork: (task, body, headers) => call('POST', `${taskAt(task)}/requests`, { body, headers }),
    /** body {tasks, count, linger?, lease?}: tasks are names, or ['*'] for all. */
    getNext: (body, headers) => call('POST', `${api}/requests`, { body, headers }),
    cancel: (id) => send('DELETE', `${api}/requests/${segment(id)}`),
    /** Work in any state, with its details also if other answers left them out (details_left_out). */
    showWork: (id) => get(`${api}/work/${segment(id)}`),
    /** keepalive: it is sent even if the page is just being left. repeats: 0, if the caller repeats it after a 429. */
    dispose: (id, body, { keepalive, repeats } = {}) => send('POST', `${api}/work/${segment(id)}/disposition`, body, { keepalive, repeats }),
    extend: (id) => send('POST', `${api}/work/${segment(id)}/extend`),
    /** until: RFC 3339, or null to take the work up again. */
    later: (id, until) => send('POST', `${api}/work/${segment(id)}/later`, { until }),
    claim: (task, item, to) => send('POST', `${taskAt(task)}/items/${segment(item)}/claim`, to, { within: patience }),

    // For observers. A list is {<plural>: […], next_cursor?}; empty filters do not filter.
    /** Waiting requests, oldest first: filter {task, cursor, limit}. */
    waiting: (filter) => get(`${api}/requests`, filter),
    /** Work of all times, newest first: filter {task, user, item, state, cursor, limit}. */
    work: (filter) => get(`${api}/work`, filter),
    /** The same as a table for a spreadsheet: texts whose concatenation is one CSV file, of 1000 rows each. */
    async *workTable(filter, { signal } = {}) {
      const first = new URLSearchParams({ ...filter, format: 'csv' });
      for (let path = `${api}/work?${first}`, head = ''; path;) {
        const { body, next } = await call('GET', path, { signal });
        yield head ? body.slice(head.length) : body;
        head ||= body.slice(0, body.indexOf('\n') + 1);
        path = next;
      }
    },
    /** Who holds how much of which task, longest first: filter {task: 'a,b', user, cursor, limit}; with the first page a total {users, held}. */
    holders: (filter) => get(`${api}/holders`, filter),
    /** A task's runs, newest first: filter {cursor, limit}. */
    runs: (task, filter) => get(`${taskAt(task)}/runs`, filter),
    /** Counts of each step of time: filter {task: 'a,b', from, step}. */
    /** What is wrong with tasks now, most urgent first: [{kind: 'failing' | 'unserved' | 'late', task, since, count, detail?}]. */
    alerts: () => get(`${api}/alerts`),
    /** filter {task, from, step: '1d' for days, zone: of these}. */
    history: (filter) => get(`${api}/history`, filter),
    /** Users who return much, and items that many return: filter {task, from}. */
    returns: (filter) => get(`${api}/returns`, filter),
    /** How much one user may hold over all tasks, {everybody?, groups?, people?}, and the tag that a change must send. */
    limits: async () => {
      const { body, tag } = await call('GET', `${api}/limits`);
      return { limits: body, tag };
    },

    // For managers.
    /** settings {name, query, …}, see Task in /openapi.json; the answer is the task. */
    createTask: (settings) => send('POST', `${api}/tasks`, settings),
    /** tag: of the task as it was read; if the task has changed since, the call fails with type '/problems/stale-version'. */
    updateTask: (name, changes, tag) => send('PATCH', taskAt(name), changes, { headers: { 'If-Match': tag } }),
    /** Pauses or resumes a task. It makes no version, and so needs no tag. */
    setPaused: (name, paused) => send('PATCH', taskAt(name), { paused }),
    /** Replaces the limits; tag: as for a task. The answer is {limits, tag}. */
    setLimits: async (limits, tag) => {
      const { body, tag: now } = await call('PUT', `${api}/limits`, { body: limits, headers: { 'If-Match': tag } });
      return { limits: body, tag: now };
    },
    /** When a task was created, changed, paused and resumed, and by whom, newest first: filter {cursor, limit}. */
    taskLog: (name, filter) => get(`${taskAt(name)}/log`, filter),
    deleteTask: async (name) => void (await call('DELETE', taskAt(name))),
    /** The tables and columns that a ranking query may read: {tables: [{name, view, columns: [{name, type}]}], cut}. */
    schema: async () => (await call('GET', `${api}/schema`, { within: patience })).body,
    /** A task's versions, newest first: filter {cursor, limit}. */
    versions: (name, filter) => get(`${taskAt(name)}/versions`, filter),
    restore: (name, version, tag) => send('POST', `${taskAt(name)}/versions/${version}/restore`, undefined, { headers: tag ? { 'If-Match': tag } : {} }),
    /**
     * What the task's query, or the given one, would hand out now: options {query, limit}. Without a name, for a task that does
     * not exist yet: options {query, query_timeout, slots, limit}. signal aborts it; within does after so many ms.
     */
    preview: (name, options = {}, { signal, within = patience } = {}) =>
      send('POST', `${name ? taskAt(name) : api}/preview`, options, { signal, within }),
    /** How another query would rank a task's items: options {query} or {version}, {limit, seed}. signal aborts it; within does after so many ms. */
    compare: (task, options, { signal, within = patience } = {}) => send('POST', `${taskAt(task)}/compare`, options, { signal, within }),
    /** Why an item is or is not handed out. signal aborts it, and the task's query, if that runs for it. */
    explain: async (task, item, { signal } = {}) => (await call('GET', `${taskAt(task)}/items/${segment(item)}`, { within: patience, signal })).body,
    /** items [{item, priority?, not_before?, deadline?, slots?, exclusive?, details?}], to a task without a query: {accepted, duplicates}. */
    push: (task, items) => send('POST', `${taskAt(task)}/items`, items),
    /** Puts back items that are never to return: the named ones, or all whose attempts were used up. */
    redrive: (task, items) => send('POST', `${taskAt(task)}/redrive`, items ? { items } : {}),
    /** Gives held work to another user. */
    /** Refused with an error of the field force if nobody of that name has been seen; force gives it to them all the same. */
    reassign: (id, user, force = false) => send('POST', `${api}/work/${segment(id)}/reassign`, { user, ...(force && { force }) }),
    /** Takes back work of a user, a task, or a user in a task: first {user?, task?, dry_run: true}, which gives {count, requests, token}; then with that token. What the
     * user waits for is cancelled, too. */
    release: (filter) => send('POST', `${api}/work/release`, filter, { within: patience }),
  };
}

/**
 * Refuses a path with a segment . or .. : in every encoding, URL parsers resolve these as steps in the path
 * (https://url.spec.whatwg.org/#double-dot-path-segment), so that another address would be called.
 */
function nameable(path) {
  const [, step] = path.split('?')[0].match(/\/((?:\.|%2e){1,2})(?:\/|$)/i) ?? [];
  if (!step) return;
  const detail = `“${decodeURIComponent(step)}” can’t be named in an address, where it is a step in the path; use the command line: getwork items`;
  throw new Problem(400, { type: '/problems/invalid', title: 'Not an address', detail });
}

/**
 * Connects, and stays connected until close(). All options may be left out:
 *   url        where the server is, such as 'https://work.example'; default: where the page came from
 *   headers    sent with every call, such as {Authorization: 'Bearer …'}; also with the socket if its constructor takes
 *              headers, as Node's does. A browser's does not, and sends cookies
 *   watch      true: for a program that only watches tasks. It has no pipeline, which an observer may not read
 *   parse      parses JSON text, for callers who distinguish 1.50 from 1.5; default: JSON.parse
 *   translate  puts a call's Problem into another language, and returns it or its promise
 *   fetch, WebSocket, clock {now, setTimeout, clearTimeout}, random, delays: for tests, and other surroundings
 */
export function connect(options = {}) {
  return new Client(options);
}

class Client extends EventTarget {
  work = new Map();
  requests = new Map();
  absences = new Map(); // in force or to come
  state = { name: 'connecting' };
  known = false; // the pipeline has been read: until then an empty `work` says nothing
  user = null; // from the server's hello
  ahead = 0; // by how many ms the server's clock is ahead of ours: all times are by the server's

  #api; #url; #headers; #watch; #parse; #WebSocket; #clock; #random; #delays;
  #socket = null;
  #timers = { silence: null, ping: null, retry: null, poll: null };
  #left = new AbortController(); // removes the listeners on the page
  #failures = 0;
  #liveSince = null; // when the present socket brought its snapshot
  #shown = false; // there was a snapshot since the start, or since resume()
  #fault = false; // the server rejected a message: the socket is not tried again
  #polling = false;
  #step = 0; // in delays.poll
  #waited = 0; // ms between polls, summed up. Not by the clock: a machine that slept has not asked
  #round = 0; // of polling; an answer to a former one no longer schedules anything
  #seen = false; // there was a snapshot, or polling
  #changes = 0;
  #subscribed = new Set();
  #missing = new Set(); // those of them that the server does not know
  #tags = new Map(); // ETags of pending requests
  // Ids that have ended: answers and events overtake each other, and an old one must not bring them back.
  #ended = new Set();
  #closed = new Set();
  #closing = new Map(); // the future state of work that is being closed, by id
  #untold = new Set(); // held work of which only answers to calls have told: a snapshot may be older than they are

  constructor({ url = '', headers, watch = false, fetch, parse = JSON.parse, translate, WebSocket = globalThis.WebSocket, clock = globalThis, random = Math.random, delays = {} }) {
    super();
    this.#api = rest({ url, headers, fetch, parse, translate, clock, dated: (time) => this.#dated(time) });
    this.#headers = headers;
    this.#watch = watch;
    this.#parse = parse;
    this.#url = new URL(`${url}/api/v1/ws`, globalThis.location?.href);
    this.#url.protocol = this.#url.protocol.replace('http', 'ws');
    this.#WebSocket = WebSocket;
    this.#clock = {
      now: () => (clock === globalThis ? Date.now() : clock.now()),
      setTimeout: (f, ms) => clock.setTimeout(f, ms),
      clearTimeout: (id) => clock.clearTimeout(id),
    };
    this.#random = random;
    this.#delays = { ...defaults, ...(watch && { stop: Infinity }), ...delays };
    const { signal } = this.#left;
    globalThis.addEventListener?.('online', () => this.#wake(), { signal });
    globalThis.document?.addEventListener('visibilitychange', () => { if (!document.hidden) this.#wake(); }, { signal });
    this.#open();
  }

  // Commands.

  /**
   * Asks for count items of a task and returns the request, which may be pending. linger, such as '10m': how long it waits
   * if there is nothing. lease, such as '30s': for programs. key, any text: makes a repetition safe after a 503 or without
   * an answer.
   */
  async getWork(task, count, { linger, lease, key } = {}) {
    return this.#asked(this.#api.getWork(task, { count, linger, lease }, key ? { 'Idempotency-Key': key } : {}));
  }

  /** The same over several tasks: their names, or ['*'] for all. The first of them that can answers. */
  async getNext(tasks, count, { linger, lease, key } = {}) {
    return this.#asked(this.#api.getNext({ tasks, count, linger, lease }, key ? { 'Idempotency-Key': key } : {}));
  }

  async #asked(answer) {
    const { body, tag } = await answer.catch(this.#denied);
    if (body.state === 'pending') this.#tags.set(body.id, tag);
    this.#takeRequest(body);
    if (this.state.name === 'stopped' && this.state.reason !== 'closed') this.resume();
    else if (this.#polling) this.#restartPolling();
    return body;
  }

  /** Cancels a pending request. */
  async cancel(id) {
    const request = await this.#correcting(this.#api.cancel(id));
    this.#takeRequest(request);
    return request;
  }

  /**
   * Closes work: {outcome: 'complete' | 'return' | 'never' | 'fail', after?: '4h', to?: 'all' | 'others', error?,
   * note?}. A return needs after, from '0s' to '72h'; to 'others': not to me again. 'fail' is for programs: it counts an
   * attempt. If the lease is lost, the call fails with type '/problems/lease-lost', and `gone` comes. keepalive: it is sent
   * even if the page is just being left. repeats: how often it is repeated after a 429; twice by default.
   */
  async dispose(id, { outcome, code, after, to, error, note, result }, { keepalive, repeats } = {}) {
    this.#closing.set(id, becomes[outcome] ?? Object.values(becomes).flat()); // a code may say it
    const answer = this.#api.dispose(id, { outcome, code, after, to, error, note, result }, { keepalive, repeats }).finally(() => this.#closing.delete(id));
    const work = await this.#correcting(answer, id);
    this.#takeWork(work, true);
    this.#changed();
    return work;
  }

  /**
   * Renews the lease of held work, and returns the work with its new lease_expires_at; work without a lease stays as it is.
   * If the lease is lost, the call fails with type '/problems/lease-lost', and `gone` comes: stop working on that item.
   */
  async extend(id) {
    const work = await this.#correcting(this.#api.extend(id), id);
    this.#takeWork(work);
    this.#changed();
    return work;
  }

  /**
   * Puts held work aside until a time in RFC 3339, at most 72 hours from now, or takes it up again with null. It stays held, and its
   * lease begins then. Returns the work with its later_until.
   */
  async later(id, until) {
    const work = await this.#correcting(this.#api.later(id, until), id);
    this.#takeWork(work);
    this.#changed();
    return work;
  }

  /**
   * Takes one named item of a task, and returns the work, also if it was the caller's already. It may take as long as
   * the task's query, and is given up after 3 minutes. It fails with '/problems/no-slot', all its places are taken;
   * '/problems/not-available', it is put off, or a rule keeps it from the caller; '/problems/not-found', it does not match
   * the task.
   */
  async claim(task, item) {
    const work = await this.#api.claim(task, item).catch(this.#denied);
    this.#takeWork(work);
    this.#changed();
    return work;
  }

  /** How many ms of a lease are left, by the server's clock; 0: it is over; null: the work has no lease. */
  left(work) {
    if (!work.lease_expires_at) return null;
    return Math.max(0, Date.parse(work.lease_expires_at) - this.#clock.now() - this.ahead);
  }

  /** Enters an absence, as rest().away() does, and returns it. */
  async away(absence) {
    const entered = await this.#api.away(absence).catch(this.#denied);
    if (entered.user === this.user?.user) this.#takeAbsence(entered);
    return entered;
  }

  /** Ends an absence of the caller's, and returns it. */
  async back(id) {
    const ended = await this.#api.back(id).catch(this.#denied);
    this.#takeAbsence(ended);
    return ended;
  }

  /** The caller's identity as the server knows it, as rest().me() gives it. If nobody is logged in any more, `state` changes, too. */
  me() { return this.#api.me().catch(this.#denied); }

  /** All tasks, with their counts. */
  tasks() { return this.#api.tasks(); }

  /** Follows tasks by name, also after a reconnect: their `task` and `run` events come. */
  subscribe(names) {
    const added = [...new Set(names)].filter((name) => !this.#subscribed.has(name));
    for (const name of added) {
      this.#subscribed.add(name);
      this.#missing.delete(name);
    }
    this.#follow(added);
  }

  unsubscribe(names) {
    const dropped = [...names].filter((name) => this.#subscribed.delete(name));
    this.#say('unsubscribe', dropped);
  }

  /** Goes on after `stopped`. */
  resume() {
    this.#quiet();
    this.#fault = false;
    this.#failures = 0;
    this.#shown = false;
    this.#open();
  }

  /** Ends it. Requests stay with the server. */
  close() {
    this.#left.abort();
    this.#stop('closed');
  }

  /** Reads the pending requests and the pipeline now. */
  async refresh() {
    if (this.#watch) return;
    for (const id of [...this.requests.keys()]) await this.#ask(id);
    const before = this.#changes;
    const pipeline = await this.#api.pipeline();
    if (before === this.#changes) await this.#takeSnapshot(pipeline); // otherwise the present pipeline is newer
  }

  // The socket.

  #open() {
    this.#missing.clear();
    if (!this.#polling) this.#tell({ name: 'connecting' });
    const protocols = 'getwork.v1';
    let socket;
    try {
      socket = new this.#WebSocket(this.#url, this.#headers ? { protocols, headers: this.#headers } : protocols);
    } catch {
      this.#lost(1006);
      return;
    }
    this.#socket = socket;
    this.#awaitWord();
    socket.onmessage = (e) => { if (this.#socket === socket) this.#hear(this.#parse(e.data)); };
    socket.onclose = (e) => { if (this.#socket === socket) this.#lost(e.code); };
  }

  /** Gives the socket up if it stays silent. */
  #awaitWord() {
    this.#after('silence', this.#delays.silence, () => this.#giveUp());
  }

  #giveUp() {
    this.#socket.close();
    this.#lost(1006);
  }

  /**
   * Asks the server for a sign of life, which distinguishes a dead connection from an idle one: a page does not see the
   * server's pings. The API has no message `ping`; the server answers an unknown message with `error`.
   */
  #ping() {
    if (this.#socket?.readyState !== 1) return;
    this.#send({ type: 'ping' });
    this.#awaitWord();
  }

  /** The network is back, or the page is visible again: the next attempt is made now. */
  #wake() {
    if (this.#socket) this.#ping();
    else if (this.state.reason === 'patience') this.resume();
    else if (this.state.name !== 'stopped') {
      this.#after('retry', this.#random() * this.#delays.wake, () => {
        if (this.#polling) this.#poll();
        if (!this.#fault) this.#open();
      });
    }
  }

  /**
   * 1001, 1006, 1013 and others mean: reconnect. 1003 and 1009 are this client's fault, which reconnecting would repeat. After
   * 4401 and 4403 nobody is let in again.
   */
  #lost(code) {
    this.#socket = null;
    if (code === 4401 || code === 4403) {
      this.#stop(code === 4401 ? 'unauthenticated' : 'forbidden');
      return;
    }
    this.#cancel('silence');
    this.#cancel('ping');
    this.#fault = code === 1003 || code === 1009;
    const worked = this.#liveSince !== null && this.#clock.now() - this.#liveSince > this.#delays.steady;
    this.#liveSince = null;
    this.#failures = worked ? 1 : this.#failures + 1;
    if (!this.#fault) {
      const [first, most] = this.#delays.socket;
      const wait = Math.min(most, first * 2 ** (this.#failures - 1));
      this.#after('retry', wait * (0.5 + this.#random() / 2), () => this.#open());
    }
    // One loss is a node that restarts, and another takes over; after more than one, polling begins.
    if (this.#failures > 1 || !this.#shown || this.#fault) this.#startPolling();
    else this.#tell({ name: 'connecting' });
  }

  #hear(message) {
    const body = message[message.type];
    this.#cancel('silence');
    this.#after('ping', this.#delays.ping, () => this.#ping());
    switch (message.type) {
      case 'hello':
        this.user = body;
        this.ahead = Date.parse(body.server_time) - this.#clock.now();
        this.#emit('hello', body);
        this.#follow(this.#subscribed);
        return;
      case 'snapshot':
        this.#takeSnapshot(body);
        this.#emit(this.#seen ? 'reread' : 'tasks');
        this.#seen = true;
        if (this.state.name !== 'live' && this.state.name !== 'lagging') this.#live();
        return;
      case 'request':
        this.#takeRequest(body);
        this.#wasTold(body.work ?? []);
        return;
      case 'work':
        if (body.state === 'completed' && body.earlier?.length) return this.#emit('reviewed', body);
        this.#takeWork(body);
        this.#wasTold([body]);
        return this.#changed();
      case 'absence':
        this.#takeAbsence(body);
        return this.#emit('absence', body);
      case 'node':
        if (body.state === 'lagging') this.#tell({ name: 'lagging' });
        if (body.state === 'live' && this.state.name === 'lagging') this.#tell({ name: 'live' });
        return;
      case 'error':
        if (body.type === '/problems/invalid') return; // the answer to #ping; all other messages are valid
        if (body.status === 404) this.#refused(body.detail);
        this.#emit('problem', new Problem(body.status, body));
        if (body.status === 503 || body.status === 429) this.#giveUp(); // the next socket repeats what was not carried out
        return;
      case 'run': case 'task': case 'tasks': return this.#emit(message.type, body);
    }
  }

  #live() {
    this.#liveSince = this.#clock.now();
    this.#shown = true;
    this.#endPolling();
    this.#tell({ name: 'live' });
  }

  #follow(names) { this.#say('subscribe', [...names].filter((name) => !this.#missing.has(name))); }

  #say(type, names) {
    for (let i = 0; i < names.length; i += inMessage) this.#send({ type, tasks: names.slice(i, i + inMessage) });
  }

  /** The server follows none of a message's tasks because of the one that detail names. Subscribes to all others. */
  #refused(detail) {
    const [, name] = detail.match(/"(.+?)"/) ?? [];
    if (!name || this.#missing.has(name)) return;
    this.#missing.add(name);
    this.#follow(this.#subscribed);
  }

  #send(message) {
    if (this.#socket?.readyState === 1) this.#socket.send(JSON.stringify(message));
  }

  // Polling.

  #startPolling() {
    if (this.#polling) return;
    this.#polling = this.#seen = true;
    this.#step = this.#waited = 0;
    this.#tell({ name: 'polling', every: this.#delays.poll[0], next: this.#clock.now() });
    this.#poll();
  }

  async #poll() {
    const round = ++this.#round;
    let error;
    try {
      this.#emit('reread');
      if (this.#watch) await this.#api.me(); // shows whether the server answers
      await this.refresh();
    } catch (e) {
      error = e;
    }
    const barred = error?.status === 403 && await this.#api.me().then(() => false, (e) => e.status === 403);
    if (round !== this.#round || !this.#polling) return;
    if (error?.status === 401) this.#stop('unauthenticated');
    else if (barred) this.#stop('forbidden');
    else if (this.#waited >= this.#delays.stop) this.#stop('patience');
    else this.#schedulePoll(error);
  }

  #schedulePoll(error) {
    const { poll } = this.#delays;
    const every = Math.max(poll[Math.min(this.#step++, poll.length - 1)], error?.retryAfter ?? 0);
    this.#waited += every;
    this.#after('poll', every, () => this.#poll());
    this.#tell({ name: 'polling', every, next: this.#clock.now() + every, error });
  }

  /** The user clicked: they are present, and expect an answer soon. */
  #restartPolling() {
    this.#round++;
    this.#step = this.#waited = 0;
    this.#schedulePoll();
  }

  #endPolling() {
    this.#round++;
    this.#polling = false;
    this.#cancel('poll');
  }

  #quiet() {
    this.#endPolling();
    for (const name of Object.keys(this.#timers)) this.#cancel(name);
    const socket = this.#socket;
    this.#socket = null;
    this.#liveSince = null;
    socket?.close();
  }

  #stop(reason) {
    this.#quiet();
    this.#tell({ name: 'stopped', reason });
  }

  // The known pipeline.

  #takeAbsence(absence) {
    if (absence.ended_at) this.absences.delete(absence.id);
    else this.absences.set(absence.id, absence);
    this.#changed();
  }

  #takeSnapshot({ work, requests, absences = [] }) {
    this.known = true;
    this.absences = new Map(absences.map((a) => [a.id, a]));
    const held = new Set(work.map((w) => w.id));
    // Work that is being closed changes by the call's answer.
    const unheld = [...this.work.keys()].filter((id) => !held.has(id) && !this.#closing.has(id));
    const unknown = unheld.filter((id) => this.#untold.has(id));
    for (const id of unheld) if (!this.#untold.has(id)) this.#drop(id);
    for (const w of work) this.#takeWork(w);
    this.#wasTold(work);
    const pending = new Set(requests.map((r) => r.id));
    const missing = [...this.requests.keys()].filter((id) => !pending.has(id));
    for (const r of requests) this.#takeRequest(r);
    this.#changed();
    return Promise.all([...unknown.map((id) => this.#settle(this.work, id)), ...missing.map((id) => this.#settle(this.requests, id))]);
  }

  /** A request is no longer pending, or work no longer held, or else the snapshot was read before they were: the server knows. */
  async #settle(known, id) {
    try {
      await (known === this.work ? this.#askWork(id) : this.#ask(id));
    } catch {
      this.#clock.setTimeout(() => { if (known.has(id) && this.state.name !== 'stopped') this.#settle(known, id); }, this.#delays.poll[0]);
    }
  }

  async #ask(id) {
    try {
      const { status, tag, body } = await this.#api.request(id, this.#tags.get(id));
      if (status === 304) return;
      this.#tags.set(id, tag);
      this.#takeRequest(body);
    } catch (e) {
      if (e.status !== 404) throw e;
      const lost = this.requests.get(id);
      if (lost) this.#takeRequest({ ...lost, state: 'lost' });
    }
  }

  async #askWork(id) {
    try {
      const { body } = await this.#api.call('GET', `/api/v1/work/${encodeURIComponent(id)}`);
      this.#takeWork(body);
    } catch (e) {
      if (e.status !== 404) throw e;
      this.#drop(id);
    }
    this.#changed();
  }

  #takeRequest(request) {
    for (const w of request.work ?? []) this.#takeWork(w); // also repeatedly: an older snapshot may have come in between
    if (this.#ended.has(request.id)) {
      this.#changed();
      return;
    }
    if (request.state === 'pending') {
      this.requests.set(request.id, request);
    } else {
      this.requests.delete(request.id);
      this.#tags.delete(request.id);
      remember(this.#ended, request.id);
    }
    this.#changed();
    this.#emit('request', request);
  }

  /** ours: it is the answer to a command. */
  #takeWork(work, ours = this.#closing.get(work.id)?.includes(work.state)) {
    if (work.state !== 'held') {
      remember(this.#closed, work.id);
      this.#untold.delete(work.id);
      if (this.work.delete(work.id) && !ours) this.#emit('gone', work);
    } else if (!this.#closed.has(work.id)) {
      if (!this.work.has(work.id)) this.#untold.add(work.id);
      this.work.set(work.id, work);
    }
  }

  /** From now on a snapshot without that work is newer than what is known of it. */
  #wasTold(work) { for (const { id } of work) this.#untold.delete(id); }

  /** Work is no longer in the pipeline, for an unknown reason. */
  #drop(id) {
    const work = this.work.get(id);
    this.#untold.delete(id);
    if (this.work.delete(id)) this.#emit('gone', work);
  }

  /**
   * Passes a command's answer on. If the server says that the state differs, the pipeline is read again. id: of the command's
   * work.
   */
  async #correcting(answer, id) {
    try {
      return await answer.catch(this.#denied);
    } catch (e) {
      if (e.type === '/problems/lease-lost') {
        remember(this.#closed, id); // the pipeline still has it until the sweep, a moment later
        this.#drop(id);
        this.#changed();
      } else if (e.status === 409 || e.status === 404) await this.refresh().catch(() => {});
      throw e;
    }
  }

  // Helpers.

  /** A command failed; if nobody is logged in any more, everything will fail. */
  #denied = (e) => {
    if (e.status === 401 && this.state.reason !== 'closed') this.#stop('unauthenticated');
    throw e;
  };

  /** A socket's hello is exact to the ms. Times to the second count only without a recent hello. */
  #dated(time) {
    const ahead = time + 500 - this.#clock.now();
    if (Math.abs(ahead - this.ahead) > 2000) this.ahead = ahead;
  }

  #changed() {
    this.#changes++;
    this.#emit('change');
  }

  #tell(state) {
    if (state.name === 'connecting' && this.state.name === 'connecting') return;
    this.state = state;
    this.#emit('state', state);
  }

  #emit(type, detail) { this.dispatchEvent(new CustomEvent(type, { detail })); }

  #after(name, ms, f) {
    this.#cancel(name);
    this.#timers[name] = this.#clock.setTimeout(f, ms);
  }

  #cancel(name) { this.#clock.clearTimeout(this.#timers[name]); }
}

/** The last thousand ids are enough: events overtake each other by seconds only. */
function remember(set, id) {
  set.add(id);
  if (set.size > 1000) set.delete(set.values().next().value);
}
