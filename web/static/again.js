/**
 * Loads a page again whose modules could not be loaded, for example because the machine's network changed meanwhile: nobody stands beside
 * a screen on a wall to do it. This is no module, so that it needs no other file.
 */

window.addEventListener('load', () => { // by now page.js runs, is about to, or never will
  const second = performance.getEntriesByType('navigation')[0]?.type === 'reload';
  setTimeout(() => {
    if (document.getElementById('not-loaded')) location.reload(); // page.js removes the element first of all
  }, second ? 30_000 : 10_000); // the element is shown after 8 s
});
