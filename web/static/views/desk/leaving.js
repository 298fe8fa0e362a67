/** Before a log-out, waiting dispositions are sent. */

import { t } from '../../lang.js';
import { ask } from '../../dialog.js';

/** Sends them; false: some can't be sent, and the user stays. */
export async function leave(outbox) {
  await Promise.race([outbox.leave(), new Promise((done) => setTimeout(done, 3000))]);
  const { unsent } = outbox;
  return !unsent.length || ask({
    title: t`Log out before all is sent?`,
    text: t`The server can’t be told now what you did with: ${unsent.join(', ')}. If you stay logged in, it is sent as soon as possible; if you log out, the items stay yours, and your notes on them are lost.`,
    yes: t`Log out anyway`,
    no: t`Stay`,
    danger: true,
  });
}
