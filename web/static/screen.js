// The page on which a screen on a wall opens its link. The link's code is behind the #, which is sent to no server by itself.
import './card.js';
import { t, translate } from './lang.js';

const button = document.getElementById('open');
const said = document.getElementById('said');
const code = location.hash.slice(1);

button.disabled = !code; // before this script is here, a click would do nothing
if (!code) {
  said.textContent = t`This link is not whole: open it as it was made, with what is behind the #.`;
}
button.addEventListener('click', async () => {
  button.disabled = true;
  said.textContent = '';
  try {
    const response = await fetch('/auth/wall', {
      method: 'POST',
      headers: { 'Content-Type': 'application/json' },
      body: JSON.stringify({ code }),
    });
    const answer = await response.json();
    if (!response.ok) throw await translate(Object.assign(new Error(answer.detail), answer));
    location.replace(answer.next);
  } catch (error) {
    said.textContent = t`That did not work: ${error.message}`;
    button.disabled = false;
  }
});
