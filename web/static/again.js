/**
 * Loads a page again whose modules could not be loaded, for example because the machine's network changed meanwhile: nobody stands beside
 * a screen on a wall to do it. This is no module, so that it needs no other file.
 */

const later = 30_000; // the page says so

window.addEventListener('load', () => { // by now page.js runs, is about to, or never will
  const second = performance.getEntriesByType('navigation')[0]?.type === 'reload';
  setTimeout(again, second ? later : 10_000); // the element is shown after 8 s
});

/** While nothing answers, or a proxy says that nothing does, the page stays: what the browser showed instead would never load it again. */
async function again() {
  if (!document.getElementById('not-loaded')) return; // page.js removes it first of all
  const status = await fetch(location.pathname, { cache: 'no-store', redirect: 'manual' }).then((answer) => answer.status, () => 503);
  if (status < 500) location.reload(); // a redirect, such as to a log-in, counts as 0
  else setTimeout(again, later);
}
