/** The API's calls about people, their sessions and tokens. */

const api = '/api/v1';
const segment = encodeURIComponent;

/** call: rest()'s. Empty filters do not filter; without a user it is the caller's own. */
export function calls({ call }) {
  const at = (path, filter = {}) => {
    const given = Object.entries(filter).filter(([, v]) => v);
    return given.length ? `${api}${path}?${new URLSearchParams(given)}` : `${api}${path}`;
  };
  const get = async (path, filter) => (await call('GET', at(path, filter))).body;
  const send = async (method, path, body) => (await call(method, path, { body })).body;
  return {
    sessions: async (user) => (await get('/sessions', { user })).sessions,
    endSession: (id) => send('DELETE', at(`/sessions/${segment(id)}`)),
    endSessions: (user) => send('DELETE', at('/sessions', { user })),
    tokens: async (user) => (await get('/tokens', { user })).tokens,
    /** {label, scopes, tasks?, expires_in, service?: {user, role, groups?}}; the answer has the token itself, this once. */
    createToken: (settings) => send('POST', at('/tokens'), settings),
    endToken: (id) => send('DELETE', at(`/tokens/${segment(id)}`)),

    // For administrators. A list is {<plural>: […], next_cursor?}.
    users: (filter) => get('/users', filter),
    block: (name, blocked, services = false) => send('PATCH', at(`/users/${segment(name)}`), { blocked, ...(services && { with_services: true }) }),
    rebind: (name, iss, sub) => send('POST', at(`/users/${segment(name)}/rebind`), { iss, sub }),
    createWall: (user, within) => send('POST', at('/walls'), { user, expires_in: within }),
    audit: (filter) => get('/audit', filter),
  };
}
