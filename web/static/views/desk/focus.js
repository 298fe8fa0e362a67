/** Where the desk's focus goes, and clicks that do not count. */

/** Gives the focus to the first control in a card; false if there is none. */
export function focusIn(element) {
  const to = element?.querySelector('.key, .undo') ?? element?.querySelector('button');
  to?.focus();
  return Boolean(to);
}

/** Ignores the second click of a double click: it would hit what now stands there, or answer "Really never?". */
export function notTwice(e) {
  if (e.detail < 2 || !e.target.closest('.finish button, .task .get, .next button')) return;
  e.preventDefault();
  e.stopPropagation();
}

/** Escape in a field goes back to its card, where keys act on it. */
export function leaveField(e) {
  if (e.key === 'Escape' && e.target.matches('input, textarea') && !e.target.closest('.menu')) focusIn(e.target.closest('li') ?? document.querySelector('#work .open'));
}
