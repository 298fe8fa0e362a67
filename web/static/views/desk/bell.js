/** Tells the user of work that comes while they look elsewhere: by a notification, and in the tab's icon and title. */

import { t } from '../../lang.js';

const stored = 'getwork.bell'; // in localStorage: the browser was asked

/** Whether the user may still be asked. */
export const mayRing = () => window.Notification && window.Notification.permission === 'default';

/** Asks for permission: once by itself, at the first wait; again if the user wants it. */
export function askToRing(again = false) {
  if (!mayRing() || (!again && localStorage.getItem(stored))) return Promise.resolve();
  localStorage.setItem(stored, 'asked');
  return Promise.resolve(window.Notification.requestPermission()).catch(() => {});
}

/** A notification; a click brings the page to the front. */
export function ring(text) {
  if (!window.Notification || window.Notification.permission !== 'granted') return;
  try {
    const note = new window.Notification(t`Your work is here`, { body: text, tag: 'getwork' });
    note.onclick = () => {
      window.focus();
      note.close();
    };
  } catch { /* some phones allow it to service workers only */ }
}

let icon; // as index.html names it
let shown = 0;

/** A number in the tab's icon; 0: none. */
export function badge(n) {
  if (n === shown) return;
  shown = n;
  const link = document.querySelector('link[rel=icon]');
  icon ??= link.href;
  if (!n) {
    link.href = icon;
    return;
  }
  const canvas = Object.assign(document.createElement('canvas'), { width: 32, height: 32 });
  const paint = canvas.getContext('2d');
  paint.fillStyle = '#2b46ab';
  paint.fillRect(0, 0, 32, 32);
  paint.fillStyle = '#fff';
  paint.font = 'bold 22px sans-serif';
  paint.textAlign = 'center';
  paint.fillText(n > 9 ? '9+' : String(n), 16, 24);
  link.href = canvas.toDataURL();
}
