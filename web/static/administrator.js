/** What getwork.js's client is to others, for administrators without a role: they have no live channel and no pipeline. */

const every = 10_000; // ms between two looks whether they still are who they were

/** api: rest()'s calls. */
export const connect = (api) => new Administrator(api);

class Administrator extends EventTarget {
  work = new Map();
  requests = new Map();
  state = { name: 'live' };
  known = true;
  ahead = 0;

  #api; #timer;

  constructor(api) {
    super();
    this.#api = api;
    this.#timer = setInterval(() => { if (!document.hidden) this.#look(); }, every);
  }

  async me() {
    try {
      return await this.#api.me();
    } catch (e) {
      if (e.status === 401) this.#stop('unauthenticated');
      if (e.status === 403) this.#stop('forbidden');
      throw e;
    }
  }

  subscribe() {}

  unsubscribe() {}

  resume() {}

  close() { this.#stop('closed'); }

  async #look() {
    const now = await this.me().catch(() => null);
    if (now?.role) this.#tell('hello', now); // they have a role by now
  }

  #stop(reason) {
    clearInterval(this.#timer);
    if (this.state.name === 'stopped') return;
    this.state = { name: 'stopped', reason };
    this.#tell('state', this.state);
  }

  #tell(type, detail) { this.dispatchEvent(new CustomEvent(type, { detail })); }
}
