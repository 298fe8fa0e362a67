// Package assign has the words that everybody here uses: tasks and their settings, requests, work, runs and items as the
// API shows them, the events of the live channel, and refusals with the table of problems that they become.
//
// It imports the standard library alone, so a program that takes work can link it without a database. Package engine
// hands out work; read its documentation next.
package assign
