/** Whether the page is light or dark: as the browser wants, unless the user has chosen in this browser. */

const stored = 'getwork.theme'; // in localStorage
const usual = ['light', 'dark'];

/** What was chosen: light, dark, or '' for what the browser wants. */
export const worn = () => usual.find((theme) => theme === localStorage.getItem(stored)) ?? '';

export function wear(theme) {
  if (theme) localStorage.setItem(stored, theme);
  else localStorage.removeItem(stored);
  show();
}

function show() { document.documentElement.style.colorScheme = worn(); }

show();
window.addEventListener('storage', show); // chosen in another window
