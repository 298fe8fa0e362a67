/** Logging out. */

import { t } from './lang.js';
import { ask } from './dialog.js';

/**
 * Logs out, unless something would be lost that the user wants to keep. The promise has the address to go to next, or null if
 * the user stays; it fails if the server could not be told.
 */
export async function leave(app, forget) {
  if (!await mayForget(app.me.user)) return null;
  const left = await Promise.all([...app.leaving].map((f) => f()));
  if (left.includes(false)) return null;
  let next = '/';
  try {
    if (app.me.by === 'dev') await app.api.logOut();
    else next = (await app.api.call('POST', '/auth/logout')).body.next;
  } catch (e) {
    if (e.status !== 401) throw e;
  }
  app.client.close();
  localStorage.setItem('getwork.left', Date.now());
  forget();
  return next;
}

/** Asks whether unsaved changes of tasks in this tab may be lost. */
async function mayForget(user) {
  const prefix = `getwork draft: ${user}: `;
  const names = Object.keys(sessionStorage).filter((key) => key.startsWith(prefix))
    .map((key) => key.slice(prefix.length) || t`a new task`).sort();
  if (!names.length) return true;
  return ask({
    title: t`Log out before it is saved?`,
    text: t`What you typed is not saved: ${names.join(', ')}. If you log out, it is lost.`,
    yes: t`Log out anyway`,
    no: t`Stay`,
    danger: true,
  });
}
