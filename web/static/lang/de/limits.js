/** German: the limits. */
export default {
  'Person or program': 'Person oder Programm',
  'A limit lacks its name.': 'Bei einer Obergrenze fehlt der Name.',
  '{0} has two limits.': '{0} hat zwei Obergrenzen.',
  'Saved.': 'Gespeichert.',
  'Somebody changed them a moment before. They are shown as they are now: look, and save again.': 'Jemand hat sie eben geändert. Hier stehen sie, wie sie jetzt sind: Sehen Sie nach, und speichern Sie noch einmal.',
  'How many items one user may hold at a time, over all tasks. A limit of their own comes first, then the greatest of their groups, then everybody’s. Programs have none but one of their own. A lower limit takes nothing away.': 'Wie viele Vorgänge jemand gleichzeitig in Arbeit haben darf, über alle Aufgaben hinweg. Zuerst gilt die eigene Obergrenze, dann die größte der Gruppen, dann die für alle. Für Programme gilt nur eine eigene. Eine niedrigere Obergrenze nimmt niemandem etwas weg.',
  'Whose': 'Für wen',
  'Limit': 'Obergrenze',
  'Remove': 'Entfernen',
  'Everybody': 'Alle',
  'Add a limit': 'Obergrenze hinzufügen',
  'Remove the limit of {0}': 'Obergrenze für {0} entfernen',
  'no name': 'noch ohne Namen',
  'none##limit': 'keine',
  'Limit: {0}': 'Obergrenze: {0}',
  'was': 'vorher',
};
