/** Moves the focus to an element that the next frame draws. */
export const focusOn = (id) => requestAnimationFrame(() => requestAnimationFrame(() => document.getElementById(id)?.focus()));
