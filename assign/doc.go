// Package assign has the vocabulary that all packages share: tasks and their settings, requests, work, runs and items as
// the API shows them, the events of the live channel, and refusals with the table of problems that they become.
//
// It imports only the standard library, so a program that takes work can link it without a database driver. Package engine
// hands out work; read its documentation next.
package assign
