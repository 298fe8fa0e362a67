/**
 * A client for getwork in one module, without dependencies, for browsers and other programs that speak JavaScript.
 *
 *     import { connect } from '/static/getwork.js';
 *     const client = connect();
 *     client.addEventListener('change', () => show(client.work, client.requests));
 *     client.addEventListener('state', (e) => console.log(e.detail.name));
 *     await client.getWork('verify-bank-account', 3);
 *     await client.extend(id);
 *     await client.dispose(id, { outcome: 'complete' });
 *
 * It keeps the caller's pipeline: `client.work` and `client.requests` (those pending) are Maps by id, of the shapes
 * that the REST API has. What happens is pushed over a WebSocket. While that can't be had, the pending requests and
 * the pipeline are asked for after 5, then 10, then every 20 s, and the socket is tried again now and then.
 *
 * Events, each a CustomEvent with its matter in `detail`:
 *   state    {name, …}: see State below
 *   change   the Maps have changed
 *   request  a request that is new or has changed; one that has ended comes exactly once
 *   gone     work that left the pipeline, and it was not this client that let go of it. Its state says why; where that
 *            is 'held', nobody said: it only is not in the pipeline any more. It comes before `change`
 *   run      a run's phase, for a task that the caller waits for or subscribed to
 *   task     a subscribed task with its counts
 *   hello    whom the server takes the caller for
 *   problem  a Problem that the server told over the socket
 *
 * State: one of
 *   {name: 'connecting'}                       no socket yet, and no polling yet
 *   {name: 'live'}                             what happens is pushed
 *   {name: 'lagging'}                          pushed too, but some seconds late: the node lost its notifications
 *   {name: 'polling', every, next, error?}     asking every so many ms, next at that time; error: the last one failed
 *   {name: 'stopped', reason}                  'patience': 15 minutes of polling are over; requests stay where they
 *                                              are, and resume() goes on. 'unauthenticated': log in. 'closed'
 */

/** What work becomes when its holder lets go of it. */
const becomes = { complete: ['completed'], return: ['returned'], never: ['never'], fail: ['failed', 'never'] };

/** Delays in milliseconds; pass others as connect({delays}). */
const defaults = {
  poll: [5_000, 10_000, 20_000],
  stop: 15 * 60_000, // of polling without a socket
  socket: [500, 30_000], // the first wait before it is tried again, doubled each time, and the longest
  silence: 5_000, // a socket that has not said hello by then is given up
  steady: 10_000, // one that lasted so long counts as having worked
};

/** How a call failed: RFC 9457's members, and `retryAfter` in ms. Status 0: no answer at all. */
export class Problem extends Error {
  constructor(status, body = {}, retryAfter = 0) {
    super(body.detail || body.title || `the server answered with status ${status}`);
    this.name = 'Problem';
    this.status = status;
    this.type = body.type ?? 'about:blank';
    this.title = body.title ?? '';
    this.detail = this.message;
    this.errors = body.errors ?? [];
    this.retryAfter = retryAfter;
  }
}

/**
 * The REST calls alone, without anything live. Each returns a promise that fails with a Problem. dated, if given, is
 * told the server's time (ms) with each answer, to the second.
 */
export function rest({ url = '', fetch = (...args) => globalThis.fetch(...args), parse = JSON.parse, dated } = {}) {
  async function call(method, path, { body, headers, within = 30_000 } = {}) {
    const init = { method, headers: { ...headers }, cache: 'no-store', signal: AbortSignal.timeout(within) };
    if (body !== undefined) {
      init.headers['Content-Type'] = 'application/json';
      init.body = JSON.stringify(body);
    }
    let response, text;
    try {
      response = await fetch(url + path, init);
      dated?.(Date.parse(response.headers.get('Date')));
      text = await response.text();
    } catch {
      throw new Problem(0, { type: '/problems/unavailable', title: 'No answer', detail: 'the server can’t be reached' });
    }
    const json = /\bjson\b/.test(response.headers.get('Content-Type') ?? '') ? parse(text) : undefined;
    if (!response.ok && response.status !== 304) {
      throw new Problem(response.status, json, 1000 * (Number(response.headers.get('Retry-After')) || 0));
    }
    return { status: response.status, tag: response.headers.get('ETag'), body: json };
  }
  const api = '/api/v1';
  const segment = encodeURIComponent;
  return {
    call,
    logIn: async (user, role = 'worker') => void (await call('POST', '/login', { body: { user, role } })),
    logOut: async () => void (await call('POST', '/logout')),
    me: async () => (await call('GET', `${api}/me`)).body,
    tasks: async () => (await call('GET', `${api}/tasks`)).body.tasks,
    pipeline: async () => (await call('GET', `${api}/pipeline`)).body,
    request: (id, tag) => call('GET', `${api}/requests/${segment(id)}`, { headers: tag ? { 'If-None-Match': tag } : {} }),
    getWork: (task, body, headers) => call('POST', `${api}/tasks/${segment(task)}/requests`, { body, headers }),
    cancel: async (id) => (await call('DELETE', `${api}/requests/${segment(id)}`)).body,
    dispose: async (id, body) => (await call('POST', `${api}/work/${segment(id)}/disposition`, { body })).body,
    extend: async (id) => (await call('POST', `${api}/work/${segment(id)}/extend`)).body,
    // The task's query may have to look for the item, and takes its time.
    claim: async (task, item) => (await call('POST', `${api}/tasks/${segment(task)}/items/${segment(item)}/claim`, { within: 180_000 })).body,
  };
}

/**
 * Connects, and keeps connected until close(). Options, all of which may be left out:
 *   url        where the server is, such as 'https://work.example'; default: where the page came from
 *   parse      what makes values of JSON text, for callers to whom 1.50 is not 1.5; default: JSON.parse
 *   fetch, WebSocket, clock {now, setTimeout, clearTimeout}, random, delays: for tests, and other surroundings
 */
export function connect(options = {}) {
  return new Client(options);
}

class Client extends EventTarget {
  work = new Map();
  requests = new Map();
  state = { name: 'connecting' };
  user = null; // as the server said hello
  ahead = 0; // by how many ms the server's clock is ahead of ours: all times are by the server's

  #api; #url; #parse; #WebSocket; #clock; #random; #delays;
  #socket = null;
  #timers = { silence: null, retry: null, poll: null };
  #failures = 0;
  #liveSince = null; // when the present socket brought its snapshot
  #shown = false; // there was a snapshot since the start, or since resume()
  #fault = false; // the server found fault with what was sent: the socket is not tried again
  #pollingSince = null;
  #step = 0; // in delays.poll
  #round = 0; // of polling; an answer to a former one no longer schedules anything
  #changes = 0;
  #subscribed = new Set();
  #tags = new Map(); // ETags of pending requests
  // Ids that have ended: answers and events overtake each other, and an old one must not bring them back.
  #ended = new Set();
  #closed = new Set();
  #closing = new Map(); // what the work becomes that is let go of just now, by id

  constructor({ url = '', fetch, parse = JSON.parse, WebSocket = globalThis.WebSocket, clock = globalThis, random = Math.random, delays = {} }) {
    super();
    this.#api = rest({ url, fetch, parse, dated: (time) => this.#dated(time) });
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
    this.#delays = { ...defaults, ...delays };
    this.#open();
  }

  // Commands.

  /** Asks for count items of a task and returns the request, which may be pending. `key` makes repeating it safe. */
  async getWork(task, count, { linger, key } = {}) {
    const { body, tag } = await this.#api.getWork(task, { count, linger }, key ? { 'Idempotency-Key': key } : {});
    if (body.state === 'pending') this.#tags.set(body.id, tag);
    this.#takeRequest(body);
    if (this.state.name === 'stopped') this.resume();
    else if (this.#pollingSince !== null) this.#restartPolling();
    return body;
  }

  /** Cancels a pending request. */
  async cancel(id) {
    const request = await this.#correcting(this.#api.cancel(id));
    this.#takeRequest(request);
    return request;
  }

  /**
   * Lets go of work: {outcome: 'complete' | 'return' | 'never' | 'fail', after?: '4h', to?: 'all' | 'others', error?,
   * note?}. A return needs after, from '0s' to '72h'; to 'others': not to me again. 'fail' is for programs: it counts an
   * attempt. Work whose lease is lost fails with type '/problems/lease-lost', and `gone` comes.
   */
  async dispose(id, { outcome, after, to, error, note }) {
    this.#closing.set(id, becomes[outcome]);
    const answer = this.#api.dispose(id, { outcome, after, to, error, note }).finally(() => this.#closing.delete(id));
    const work = await this.#correcting(answer, id);
    this.#takeWork(work, true);
    this.#changed();
    return work;
  }

  /**
   * Begins the lease of held work anew, and returns the work with its new lease_expires_at; work without a lease as it
   * is. Lost, it fails with type '/problems/lease-lost', and `gone` comes: do no more with that item.
   */
  async extend(id) {
    const work = await this.#correcting(this.#api.extend(id), id);
    this.#takeWork(work);
    this.#changed();
    return work;
  }

  /**
   * Takes one named item of a task, and returns the work, also when it was the caller's already. It may last as long as
   * the task's query, and is given up after 3 minutes. Types of failure: '/problems/no-slot', all its places are taken; '/problems/not-available', it is
   * put off, or a rule keeps it from the caller; '/problems/not-found', it does not match the task.
   */
  async claim(task, item) {
    const work = await this.#api.claim(task, item);
    this.#takeWork(work);
    this.#changed();
    return work;
  }

  /** How many ms of a lease are left, by the server's clock; 0: it is over; null: the work has none. */
  left(work) {
    if (!work.lease_expires_at) return null;
    return Math.max(0, Date.parse(work.lease_expires_at) - this.#clock.now() - this.ahead);
  }

  /** All tasks, with their counts. */
  tasks() { return this.#api.tasks(); }

  /** Follows tasks by name, also after a reconnect: their `task` and `run` events come. */
  subscribe(names) {
    for (const name of names) {
      if (this.#subscribed.has(name)) continue;
      this.#subscribed.add(name);
      this.#send({ type: 'subscribe', tasks: [name] });
    }
  }

  unsubscribe(names) {
    for (const name of names) {
      if (this.#subscribed.delete(name)) this.#send({ type: 'unsubscribe', tasks: [name] });
    }
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
  close() { this.#stop('closed'); }

  /** Reads the pending requests and the pipeline now. */
  async refresh() {
    for (const id of [...this.requests.keys()]) await this.#ask(id);
    const before = this.#changes;
    const pipeline = await this.#api.pipeline();
    if (before === this.#changes) await this.#takeSnapshot(pipeline); // else what is here is newer
  }

  // The socket.

  #open() {
    if (this.#pollingSince === null) this.#tell({ name: 'connecting' });
    let socket;
    try {
      socket = new this.#WebSocket(this.#url, 'getwork.v1');
    } catch {
      this.#lost(1006);
      return;
    }
    this.#socket = socket;
    this.#after('silence', this.#delays.silence, () => {
      socket.close();
      this.#lost(1006);
    });
    socket.onmessage = (e) => { if (this.#socket === socket) this.#hear(this.#parse(e.data)); };
    socket.onclose = (e) => { if (this.#socket === socket) this.#lost(e.code); };
  }

  /** 1001, 1006, 1013 and others mean: come back. 1003 and 1009 are a fault of ours, which coming back repeats. */
  #lost(code) {
    this.#socket = null;
    this.#cancel('silence');
    this.#fault = code === 1003 || code === 1009;
    const worked = this.#liveSince !== null && this.#clock.now() - this.#liveSince > this.#delays.steady;
    this.#liveSince = null;
    this.#failures = worked ? 1 : this.#failures + 1;
    if (!this.#fault) {
      const [first, most] = this.#delays.socket;
      const wait = Math.min(most, first * 2 ** (this.#failures - 1));
      this.#after('retry', wait * (0.5 + this.#random() / 2), () => this.#open());
    }
    // Once is a node that restarts, and another takes over; more than that, and what can be asked for is asked for.
    if (this.#failures > 1 || !this.#shown || this.#fault) this.#startPolling();
    else this.#tell({ name: 'connecting' });
  }

  #hear(message) {
    const body = message[message.type];
    switch (message.type) {
      case 'hello':
        this.user = body;
        this.ahead = Date.parse(body.server_time) - this.#clock.now();
        this.#emit('hello', body);
        for (const name of this.#subscribed) this.#send({ type: 'subscribe', tasks: [name] });
        return;
      case 'snapshot':
        this.#cancel('silence');
        this.#takeSnapshot(body);
        if (this.state.name !== 'live' && this.state.name !== 'lagging') this.#live();
        return;
      case 'request': return this.#takeRequest(body);
      case 'work':
        this.#takeWork(body);
        return this.#changed();
      case 'node':
        if (body.state === 'lagging') this.#tell({ name: 'lagging' });
        if (body.state === 'live' && this.state.name === 'lagging') this.#tell({ name: 'live' });
        return;
      case 'error': return this.#emit('problem', new Problem(body.status, body));
      case 'run': case 'task': return this.#emit(message.type, body);
    }
  }

  #live() {
    this.#liveSince = this.#clock.now();
    this.#shown = true;
    this.#endPolling();
    this.#tell({ name: 'live' });
  }

  #send(message) {
    if (this.#socket?.readyState === 1) this.#socket.send(JSON.stringify(message));
  }

  // Polling.

  #startPolling() {
    if (this.#pollingSince !== null) return;
    this.#pollingSince = this.#clock.now();
    this.#step = 0;
    this.#tell({ name: 'polling', every: this.#delays.poll[0], next: this.#clock.now() });
    this.#poll();
  }

  async #poll() {
    const round = ++this.#round;
    let error;
    try {
      await this.refresh();
    } catch (e) {
      error = e;
    }
    if (round !== this.#round || this.#pollingSince === null) return;
    if (error?.status === 401) this.#stop('unauthenticated');
    else if (this.#clock.now() - this.#pollingSince >= this.#delays.stop) this.#stop('patience');
    else this.#schedulePoll(error);
  }

  #schedulePoll(error) {
    const { poll } = this.#delays;
    const every = Math.max(poll[Math.min(this.#step++, poll.length - 1)], error?.retryAfter ?? 0);
    this.#after('poll', every, () => this.#poll());
    this.#tell({ name: 'polling', every, next: this.#clock.now() + every, error });
  }

  /** Somebody clicked: he is there, and hopes for an answer soon. */
  #restartPolling() {
    this.#round++;
    this.#pollingSince = this.#clock.now();
    this.#step = 0;
    this.#schedulePoll();
  }

  #endPolling() {
    this.#round++;
    this.#pollingSince = null;
    this.#cancel('poll');
  }

  #quiet() {
    this.#endPolling();
    this.#cancel('silence');
    this.#cancel('retry');
    const socket = this.#socket;
    this.#socket = null;
    this.#liveSince = null;
    socket?.close();
  }

  #stop(reason) {
    this.#quiet();
    this.#tell({ name: 'stopped', reason });
  }

  // What is known.

  #takeSnapshot({ work, requests }) {
    const held = new Set(work.map((w) => w.id));
    // Of what is let go of just now the answer tells.
    for (const id of [...this.work.keys()]) if (!held.has(id) && !this.#closing.has(id)) this.#drop(id);
    for (const w of work) this.#takeWork(w);
    const pending = new Set(requests.map((r) => r.id));
    const missing = [...this.requests.keys()].filter((id) => !pending.has(id));
    for (const r of requests) this.#takeRequest(r);
    this.#changed();
    return Promise.all(missing.map((id) => this.#settle(id)));
  }

  /** A request is no longer pending, and nobody said how it ended. */
  async #settle(id) {
    try {
      await this.#ask(id);
    } catch {
      this.#clock.setTimeout(() => { if (this.requests.has(id) && this.state.name !== 'stopped') this.#settle(id); }, this.#delays.poll[0]);
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
      this.requests.delete(id);
      this.#changed();
    }
  }

  #takeRequest(request) {
    if (this.#ended.has(request.id)) return;
    for (const w of request.work ?? []) this.#takeWork(w);
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
      if (this.work.delete(work.id) && !ours) this.#emit('gone', work);
    } else if (!this.#closed.has(work.id)) {
      this.work.set(work.id, work);
    }
  }

  /** Work is not in the pipeline any more, and nobody said why. */
  #drop(id) {
    const work = this.work.get(id);
    if (this.work.delete(id)) this.#emit('gone', work);
  }

  /**
   * Passes a command's answer on; where the server says that things are otherwise, they are read again. id: of the work
   * that it was about.
   */
  async #correcting(answer, id) {
    try {
      return await answer;
    } catch (e) {
      if (e.type === '/problems/lease-lost') {
        remember(this.#closed, id); // until it is swept, a moment later, the pipeline still has it
        this.#drop(id);
        this.#changed();
      } else if (e.status === 409 || e.status === 404) await this.refresh().catch(() => {});
      throw e;
    }
  }

  // The rest.

  /** A socket's hello is exact to the ms. What is said to the second counts where that was not said, or not lately. */
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

/** The last thousand ids are enough: what overtakes does so by seconds. */
function remember(set, id) {
  set.add(id);
  if (set.size > 1000) set.delete(set.values().next().value);
}
