// The page on which somebody lets a terminal log in as them.
import './card.js';
import { t, translate } from './lang.js';

const button = document.getElementById('approve');
const said = document.getElementById('said');
button.disabled = false; // before this script is here, a click would do nothing

button.addEventListener('click', async () => {
  button.disabled = true;
  said.textContent = '';
  const { challenge, port, label } = button.dataset;
  try {
    const response = await fetch('/auth/cli/approve', {
      method: 'POST',
      headers: { 'Content-Type': 'application/json' },
      body: JSON.stringify({ challenge, port: Number(port), label }),
    });
    const answer = await response.json();
    if (!response.ok) throw await translate(Object.assign(new Error(answer.detail), answer));
    if (answer.next) {
      location.replace(answer.next); // this machine, where the terminal listens
      return;
    }
    const code = document.getElementById('code');
    code.textContent = answer.code;
    code.hidden = false;
    button.hidden = true;
    said.textContent = t`Paste this code into the terminal within a minute:`;
  } catch (error) {
    said.textContent = t`That did not work: ${error.message}`;
    button.disabled = false;
  }
});
