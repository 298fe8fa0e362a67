/** The API's calls about web hooks. */

const all = '/api/v1/webhooks';
const at = (id) => `${all}/${encodeURIComponent(id)}`;

/** A redrive that brings back as many events or more may have left some. */
const redriveBatch = 5000;

/** call: rest()'s. */
export function calls({ call }) {
  const get = async (path) => (await call('GET', path)).body;
  const send = async (method, path, body) => (await call(method, path, { body })).body;
  return {
    list: async () => (await get(all)).webhooks,
    /** {task, url, events}, where a task of null is all tasks; the answer has the secret, this once. */
    create: (settings) => send('POST', all, settings),
    remove: (id) => send('DELETE', at(id)),
    /** Gives the id of the test's delivery. */
    test: async (id) => (await send('POST', `${at(id)}/test`)).delivery,
    /** keep: for how long the former secret signs, too. {secret, former_until} */
    rotate: (id, keep) => send('POST', `${at(id)}/rotate`, { keep }),
    /** Newest first; state: only those, if it is not empty. {deliveries, next_cursor?} */
    deliveries: (id, state, limit) => get(`${at(id)}/deliveries?${new URLSearchParams({ ...(state && { state }), limit })}`),
    /** Sends dead events again, the named ones or all; gives their number. Very many take several calls. */
    redrive: async (id, deliveries) => {
      let all = 0;
      let count;
      do {
        ({ count } = await send('POST', `${at(id)}/redrive`, deliveries ? { deliveries } : {}));
        all += count;
      } while (count >= redriveBatch);
      return all;
    },
  };
}
