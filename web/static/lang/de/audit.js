/** German: the audit. */
export default {
  'Act': 'Aktion',
  'all': 'alle',
  'By': 'Von',
  'Read': 'Lesen',
  'There is no such act.': 'Eine solche Aktion gibt es nicht.',
  'Nothing has been done yet.': 'Bisher ist nichts geschehen.',
  'Acts, newest first': 'Aktionen, die neueste zuerst',
  'Of what': 'Wovon',
  'When': 'Wann',
  'Older': 'Ältere',
  'More about': 'Mehr über',
  'no. {0}': 'Nr. {0}',
  'Credential': 'Berechtigung',
};
