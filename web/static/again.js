/**
 * Loads a page again whose modules could not be loaded, for example because the machine's network changed meanwhile: nobody stands beside
 * a screen on a wall to do it. This is no module, so that it needs no other file.
 */

window.addEventListener('load', () => { // by now page.js has removed the element, or never will
  if (!document.getElementById('not-loaded')) return;
  const second = performance.getEntriesByType('navigation')[0]?.type === 'reload';
  setTimeout(() => location.reload(), second ? 30_000 : 2000); // the element is shown after 8 s
});
