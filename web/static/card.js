/** The pages beside this one that say or ask one thing, such as whether a terminal may log in: their markup in the reader's language. */

import { speak, speakIn } from './lang.js';

await speak('card');
speakIn(document.body);
document.title = `${document.querySelector('h1').textContent}: getwork`;
